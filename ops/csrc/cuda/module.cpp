// The Python module mmturbox._cuda: importing it runs the registrations of
// the other files of this folder. It has no functions of its own.
#include <Python.h>

PyMODINIT_FUNC PyInit__cuda(void) {
  static struct PyModuleDef def = {PyModuleDef_HEAD_INIT, "_cuda", nullptr,
                                   -1, nullptr};
  return PyModule_Create(&def);
}
