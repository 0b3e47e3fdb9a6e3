"""Build the CUDA kernels where there is no GPU.

    python tools/build_ops.py shim    run them on the CPU (the tests do)
    python tools/build_ops.py cuda    compile them for real GPUs with nvcc

``shim`` compiles every kernel as C++ against the execution shim of
``ops/csrc/shim`` into ``build/shim/kernels.so``. ``cuda`` compiles each for
sm_80 and sm_90 and links ``build/cuda/_cuda.so``, which proves that they
compile and link; to use them install mmturbox where torch has CUDA.
"""

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ROOT / 'ops/csrc'
ARCHITECTURES = (80, 90)
HOST_FLAGS = ('-std=c++17 -fPIC -fno-math-errno -fno-trapping-math '
              '-ffp-contract=off -fvisibility=hidden -Wall')
TARGET = '-DTORCH_TARGET_VERSION=0x020a000000000000'


def _includes() -> str:
    """Flags for the headers of torch and Python."""
    import sysconfig

    from torch.utils.cpp_extension import include_paths
    folders = [*include_paths(), sysconfig.get_paths()['include']]
    return ' '.join(f'-isystem {folder}' for folder in folders)


def _torch_libraries() -> str:
    from torch.utils.cpp_extension import library_paths
    folders = ' '.join(f'-L{folder}' for folder in library_paths())
    return f'{folders} -ltorch -ltorch_cpu -lc10'


def _edges(rule: str, sources: list[Path]) -> tuple[str, list[str]]:
    """Lines of a ninja file that compile ``sources``, and their objects."""
    objects = [f'{source.name}.o' for source in sources]
    lines = [
        f'build {name}: {rule} {source}'
        for name, source in zip(objects, sources, strict=True)
    ]
    return '\n'.join(lines), objects


def shim_file() -> tuple[str, str]:
    """(ninja file, what it builds) for the execution shim."""
    kernels = sorted((SOURCES / 'cuda').glob('*.cu'))
    bindings = sorted((SOURCES / 'cuda').glob('*_binding.cpp'))
    first, kernel_objects = _edges('kernel', kernels)
    second, objects = _edges('host',
                             [*bindings, SOURCES / 'shim/shim.cpp'])
    everything = ' '.join([*kernel_objects, *objects])
    return f"""
flags = -O1 {HOST_FLAGS} -Wno-unknown-pragmas -DMMTURBOX_SHIM {TARGET} {
    _includes()}
rule kernel
  command = g++ -MMD -MF $out.d $flags -x c++ -c $in -o $out
  depfile = $out.d
rule host
  command = g++ -MMD -MF $out.d $flags -c $in -o $out
  depfile = $out.d
rule link
  command = g++ -shared $in -o $out {_torch_libraries()}
{first}
{second}
build kernels.so: link {everything}
""", 'kernels.so'


def cuda_file() -> tuple[str, str]:
    """(ninja file, what it builds) for nvcc."""
    nvcc = shutil.which('nvcc')
    if nvcc is None:
        sys.exit('build_ops: nvcc is not on PATH; install the CUDA toolkit')
    kernels = sorted((SOURCES / 'cuda').glob('*.cu'))
    hosts = sorted((SOURCES / 'cuda').glob('*.cpp'))
    first, kernel_objects = _edges('kernel', kernels)
    second, objects = _edges('host', hosts)
    targets = ' '.join(f'-gencode arch=compute_{a},code=sm_{a}'
                       for a in ARCHITECTURES)
    return f"""
flags = -O3 {HOST_FLAGS} -DUSE_CUDA {TARGET} -DPy_LIMITED_API=0x030a0000 {
    _includes()}
rule kernel
  command = {nvcc} -MMD -MF $out.d -O3 -std=c++17 {targets} $
    --expt-relaxed-constexpr -Xcompiler -fPIC,-fvisibility=hidden {
        _includes()} -c $in -o $out
  depfile = $out.d
rule host
  command = g++ -MMD -MF $out.d $flags -c $in -o $out
  depfile = $out.d
rule link
  command = {nvcc} -shared -cudart static $in -o $out {_torch_libraries()}
{first}
{second}
build _cuda.so: link {' '.join([*kernel_objects, *objects])}
""", '_cuda.so'


def build(kind: str, jobs: int | None = None) -> Path:
    """Build ``kind`` incrementally; the path of the library.

    Raises:
        subprocess.CalledProcessError: where something does not compile; the
            compiler's text is on stdout.
    """
    text, name = {'shim': shim_file, 'cuda': cuda_file}[kind]()
    folder = ROOT / 'build' / kind
    folder.mkdir(parents=True, exist_ok=True)
    command = [shutil.which('ninja') or _ninja(), '-C', str(folder), '--quiet']
    command += ['-j', str(jobs)] if jobs else []
    # Processes that start together, such as tests, build one after another.
    with open(folder / 'lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = folder / 'build.ninja'
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
        subprocess.run([*command, name], check=True)
    return folder / name


def _ninja() -> str:
    import ninja
    return os.path.join(ninja.BIN_DIR, 'ninja')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('kind', choices=['shim', 'cuda'])
    parser.add_argument('-j', '--jobs', type=int)
    args = parser.parse_args()
    try:
        print(build(args.kind, args.jobs))
    except subprocess.CalledProcessError as error:
        sys.exit(error.returncode)


if __name__ == '__main__':
    main()
