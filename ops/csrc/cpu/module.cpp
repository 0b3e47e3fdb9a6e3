// The Python module mmturbox._C: importing it runs the registrations of the
// other files of this folder. It has no functions of its own.
#include <Python.h>

PyMODINIT_FUNC PyInit__C(void) {
  static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1,
                                   nullptr};
  return PyModule_Create(&def);
}
