"""Registries of the scope ``mmturbox``, children of MMEngine's.

Each one imports its package on the first look-up, so ``type='mmturbox.X'``
resolves under any default scope once this module is imported.
"""

import mmengine.registry as root
from mmengine.registry import Registry

_LOCATIONS = {
    'RUNNERS': ['mmturbox.runner'],
    'HOOKS': ['mmturbox.hooks'],
    'DATASETS': ['mmturbox.datasets'],
    'DATA_SAMPLERS': ['mmturbox.datasets.samplers'],
    'TRANSFORMS': ['mmturbox.datasets.transforms'],
    'MODELS': ['mmturbox.models'],
    'TASK_UTILS': ['mmturbox.models.task_modules'],
    'OPTIM_WRAPPERS': ['mmturbox.optim'],
    'OPTIM_WRAPPER_CONSTRUCTORS': ['mmturbox.optim'],
    'FUNCTIONS': ['mmturbox.datasets.loaders'],
}


def _child(name: str) -> Registry:
    parent = getattr(root, name)
    return Registry(
        parent.name,
        parent=parent,
        scope='mmturbox',
        locations=_LOCATIONS.get(name, []))


RUNNERS = _child('RUNNERS')
HOOKS = _child('HOOKS')
DATASETS = _child('DATASETS')
DATA_SAMPLERS = _child('DATA_SAMPLERS')
TRANSFORMS = _child('TRANSFORMS')
MODELS = _child('MODELS')
TASK_UTILS = _child('TASK_UTILS')
OPTIM_WRAPPERS = _child('OPTIM_WRAPPERS')
OPTIM_WRAPPER_CONSTRUCTORS = _child('OPTIM_WRAPPER_CONSTRUCTORS')
METRICS = _child('METRICS')
FUNCTIONS = _child('FUNCTIONS')
PASSES = Registry('pass', scope='mmturbox', locations=['mmturbox.passes'])

COMPONENT_REGISTRIES = (RUNNERS, HOOKS, DATASETS, DATA_SAMPLERS, TRANSFORMS,
                        MODELS, TASK_UTILS, OPTIM_WRAPPERS,
                        OPTIM_WRAPPER_CONSTRUCTORS, METRICS)


def find_component(name: str) -> type | None:
    """The component registered as ``mmturbox.<name>``, or None."""
    for registry in COMPONENT_REGISTRIES:
        registry.import_from_location()
        if name in registry.module_dict:
            return registry.module_dict[name]
    return None
