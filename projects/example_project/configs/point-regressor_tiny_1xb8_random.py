"""A complete run of a few seconds on one CPU core."""

custom_imports = dict(
    imports=['projects.example_project.example_project', 'mmturbox.enable'],
    allow_failed_imports=False)
default_scope = 'mmengine'
model = dict(type='PointRegressor')
train_dataloader = dict(
    batch_size=8,
    num_workers=0,
    dataset=dict(type='RandomPoints'),
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'))
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=0.02),
    clip_grad=dict(max_norm=10))
train_cfg = dict(by_epoch=True, max_epochs=4)
default_hooks = dict(logger=dict(type='LoggerHook', interval=4))
randomness = dict(seed=0)
