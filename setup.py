"""Build mmturbox and its native operators.

Metadata stands here rather than in pyproject.toml so that one file tells how
the package is built. The build needs torch to be importable, a C++17
compiler and ninja; whatever is missing is named, and nothing is ever left
out silently.
"""

import os
import shlex
import shutil
import sys
from glob import glob

from setuptools import find_namespace_packages, setup

# The oldest torch whose stable ABI the binaries are compiled against.
TORCH_FLOOR = (2, 10)


def _stop(missing: str, remedy: str) -> None:
    sys.exit(f'\nmmturbox cannot build its native operators: {missing}.\n'
             f'Remedy: {remedy}\n')


def _check_tools():
    """torch, or an error that names what the build lacks."""
    again = 'pip install --no-build-isolation -e .'
    try:
        import torch
    except ImportError as error:
        _stop(
            f'torch is not importable in the build environment ({error})',
            'install torch >= 2.10 and "setuptools>=77 wheel ninja" first, '
            f'then run `{again}`; a plain `pip install -e .` builds in an '
            'isolated environment that cannot see the installed torch')
    found = tuple(int(v) for v in torch.__version__.split('.')[:2])
    if found < TORCH_FLOOR:
        _stop(f'torch {torch.__version__} is older than 2.10',
              'install torch >= 2.10')
    compiler = shlex.split(os.environ.get('CXX') or 'c++')[0]
    if shutil.which(compiler) is None:
        _stop('no C++ compiler was found',
              'install g++ (Debian: apt-get install g++) or set CXX')
    try:
        import ninja  # noqa: F401
    except ImportError:
        if shutil.which('ninja') is None:
            _stop('ninja was not found', 'pip install ninja')
    return torch


def _wants_cuda(torch) -> bool:
    """Whether to build mmturbox._cuda; says so where that is in doubt."""
    wish = os.environ.get('MMTURBOX_CUDA', '')
    if wish == '0' or (torch.version.cuda is None and wish != '1'):
        return False
    from torch.utils.cpp_extension import CUDA_HOME
    lacking = ('torch has no CUDA' if torch.version.cuda is None else
               'nvcc was not found' if CUDA_HOME is None else None)
    if lacking is None:
        return True
    if wish == '1':
        _stop(f'MMTURBOX_CUDA=1, but {lacking}',
              'install a CUDA build of torch and the CUDA toolkit of its '
              'major version, or set CUDA_HOME')
    print(f'mmturbox: no CUDA kernels are built: {lacking}. On a GPU the '
          'pure-torch references will run. Set CUDA_HOME and install again.',
          file=sys.stderr)
    return False


def _extensions() -> list:
    """The operator modules that can be built here."""
    torch = _check_tools()
    from torch.utils.cpp_extension import CppExtension, CUDAExtension
    floor = f'0x{TORCH_FLOOR[0]:02x}{TORCH_FLOOR[1]:02x}000000000000'
    target = [
        f'-DTORCH_TARGET_VERSION={floor}', '-DPy_LIMITED_API=0x030a0000'
    ]
    host = [
        '-O3', '-std=c++17', '-fno-math-errno', '-fno-trapping-math',
        '-ffp-contract=off', '-fvisibility=hidden', '-Wall', *target
    ]
    shared = dict(
        extra_link_args=['-Wl,-s'],
        depends=sorted(glob('ops/csrc/c*/*.h')),
        py_limited_api=True)
    modules = [
        CppExtension(
            'mmturbox._C',
            sorted(glob('ops/csrc/cpu/*.cpp')),
            extra_compile_args=host,
            **shared)
    ]
    if _wants_cuda(torch):
        if not torch.cuda.is_available():
            os.environ.setdefault('TORCH_CUDA_ARCH_LIST', '8.0;9.0+PTX')
        device = [
            '-O3', '-std=c++17', '--expt-relaxed-constexpr', '-DUSE_CUDA',
            *target
        ]
        modules.append(
            CUDAExtension(
                'mmturbox._cuda',
                sorted(glob('ops/csrc/cuda/*.c*')),
                extra_compile_args=dict(
                    cxx=[*host, '-DUSE_CUDA'], nvcc=device),
                **shared))
    return modules


def _wants_native() -> bool:
    commands = {'egg_info', 'dist_info', 'sdist', 'clean', '--version'}
    return not commands & set(sys.argv[1:])


def _requirements(name: str) -> list[str]:
    with open(f'requirements/{name}.txt') as file:
        lines = [line.split('#')[0].strip() for line in file]
    return [line for line in lines if line]


with open('README.md', encoding='utf-8') as file:
    readme = file.read()
extensions, commands = [], {}
if _wants_native():
    extensions = _extensions()
    from torch.utils.cpp_extension import BuildExtension
    commands = {'build_ext': BuildExtension.with_options(use_ninja=True)}

setup(
    name='mmturbox',
    version='0.1.0',
    description='Train OpenMMLab driving models faster with the same losses',
    long_description=readme,
    long_description_content_type='text/markdown',
    license='Apache-2.0',
    license_files=['LICENSE'],
    python_requires='>=3.10',
    install_requires=['torch>=2.10', 'numpy', 'mmengine>=0.10.7', 'psutil'],
    # mmdet3d and mmdet themselves are installed with --no-deps, from
    # requirements/mmdet3d-nodeps.txt: what they ask for cannot be met at once.
    extras_require={
        name: _requirements(name)
        for name in ('build', 'mmdet3d', 'dev')
    },
    packages=find_namespace_packages(
        include=['mmturbox', 'mmturbox.*', 'projects', 'projects.*']),
    ext_modules=extensions,
    cmdclass=commands,
    options={'bdist_wheel': {'py_limited_api': 'cp310'}},
    zip_safe=False)
