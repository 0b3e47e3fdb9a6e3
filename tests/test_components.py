"""Names resolve wherever they are used, and options can be given anywhere."""

import argparse
import os
import subprocess
import sys

import pytest

ROOTS = {
    'HOOKS', 'RUNNERS', 'DATASETS', 'DATA_SAMPLERS', 'TRANSFORMS', 'MODELS',
    'TASK_UTILS', 'OPTIM_WRAPPERS', 'OPTIM_WRAPPER_CONSTRUCTORS', 'METRICS'
}

# Reads a config from an empty folder; then every component resolves from the
# root registries under three scopes, here and in a spawned process.
RESOLVE = '''
import multiprocessing
import sys


def resolve(queue):
    import mmengine.registry as root
    from mmengine.registry import DefaultScope
    from mmturbox import registry
    lines = []
    for scope in ('mmengine', 'mmdet3d', 'mmturbox'):
        DefaultScope.get_instance(f'test-{scope}', scope_name=scope)
        for child in registry.COMPONENT_REGISTRIES:
            child.import_from_location()
            parent = child.parent
            for name, cls in child.module_dict.items():
                assert parent.get(f'mmturbox.{name}') is cls, (scope, name)
                if scope == 'mmturbox':
                    with parent.switch_scope_and_registry(None) as inner:
                        assert inner.get(name) is cls, name
                lines.append(f'{scope} {name}')
    queue.put(lines)


if __name__ == '__main__':
    from mmengine.config import Config
    Config.fromfile('config.py')
    context = multiprocessing.get_context('spawn')
    queue = context.Queue()
    resolve(queue)
    here = queue.get(timeout=60)
    child = context.Process(target=resolve, args=(queue, ))
    child.start()
    assert queue.get(timeout=200) == here
    child.join()
    print(*here, sep='\\n')
'''


def test_every_component_resolves_in_three_scopes_and_in_workers(tmp_path):
    # KF-F1, KF-F2
    pytest.importorskip('mmdet3d')
    (tmp_path / 'config.py').write_text(
        "custom_imports = dict(imports=['mmturbox.enable'])\n")
    (tmp_path / 'resolve.py').write_text(RESOLVE)
    environ = {k: v for k, v in os.environ.items() if k != 'PYTHONPATH'}
    done = subprocess.run([sys.executable, 'resolve.py'],
                          cwd=tmp_path,
                          env=environ,
                          capture_output=True,
                          text=True,
                          timeout=400)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for scope in ('mmengine', 'mmdet3d', 'mmturbox'):
        assert f'{scope} TurboRunner' in lines
        assert f'{scope} OptimWrapper' in lines


def test_registries_are_children_of_mmengines():
    from mmturbox import registry
    names = {
        n
        for n, r in vars(registry).items()
        if r in registry.COMPONENT_REGISTRIES
    }
    assert names == ROOTS


def load(tmp_path, *options):
    from mmturbox.system.cli import add_common_arguments, load_config
    path = tmp_path / 'config.py'
    path.write_text('hooks = [dict(type="A", n=1), dict(type="B", n=2)]\n'
                    'value = 3\n'
                    'turbo = dict()\n')
    parser = argparse.ArgumentParser()
    parser.add_argument('config')
    add_common_arguments(parser)
    return load_config(parser.parse_args([str(path), *options]))


@pytest.mark.parametrize(('options', 'check'), [
    (['turbo.level=max'], lambda c: c.turbo.level == 'max'),
    (['turbo.optim_wrapper.merge=False', 'turbo.ddp=False'],
     lambda c: c.turbo == dict(optim_wrapper=dict(merge=False), ddp=False)),
    (['hooks.1.n=5'], lambda c: [h.n for h in c.hooks] == [1, 5]),
    (['value=None'], lambda c: c.value is None),
    (['value=[(1,2),(a,b)]'], lambda c: c.value == [(1, 2), ('a', 'b')]),
    (['value=1,2'], lambda c: c.value == [1, 2]),
])
def test_options_from_the_command_line_take_every_form(tmp_path, monkeypatch,
                                                       options, check):
    # KF-F4
    monkeypatch.setenv('LOCAL_RANK', '0')
    assert check(load(tmp_path, '--cfg-options', *options))
    several = [w for o in options for w in ('--cfg-options', o)]
    assert check(load(tmp_path, *several))


def test_option_of_a_wrong_type_names_the_option(tmp_path, monkeypatch):
    # KF-F4
    from mmturbox.passes.driver import make_plan
    monkeypatch.setenv('LOCAL_RANK', '0')
    cfg = load(tmp_path, '--cfg-options', 'turbo.optim_wrapper.merge=word')
    with pytest.raises(TypeError, match=r'turbo\.optim_wrapper\.merge'):
        make_plan(cfg)


def test_option_that_does_not_fit_the_config_is_named(tmp_path, monkeypatch):
    from mmturbox.errors import ConfigError
    monkeypatch.setenv('LOCAL_RANK', '0')
    with pytest.raises(ConfigError, match=r'hooks\.7\.n'):
        load(tmp_path, '--cfg-options', 'hooks.7.n=5')


def test_options_pass_through_the_shell_launcher_unchanged(tmp_path):
    # KF-F4
    from pathlib import Path
    script = Path(__file__).parents[1] / 'tools' / 'dist_train.sh'
    python = tmp_path / 'python'
    python.write_text('#!/bin/sh\nfor a in "$@"; do echo "<$a>"; done\n')
    python.chmod(0o755)
    options = ['--cfg-options', 'a=[(1,2),(3,4)]', 'b.0.c="x y"', 'd=None']
    done = subprocess.run(['bash', str(script), 'c.py', '2', *options],
                          env={
                              **os.environ, 'PYTHON': str(python),
                              'NUMA': 'node'
                          },
                          capture_output=True,
                          text=True,
                          timeout=30)
    lines = done.stdout.splitlines()
    assert lines[-4:] == [f'<{o}>' for o in options]
    assert '<--numa-binding=node>' in lines
