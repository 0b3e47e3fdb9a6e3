custom_imports = dict(imports=['toy_parts', 'mmturbox.enable'])
default_scope = 'mmengine'
model = dict(type='ToyModel')
train_dataloader = dict(
    batch_size=2,
    num_workers=0,
    dataset=dict(type='ToyDataset'),
    collate_fn=dict(type='default_collate'),
    sampler=dict(type='DefaultSampler', shuffle=True))
train_cfg = dict(by_epoch=True, max_epochs=1)
optim_wrapper = dict(
    type='OptimWrapper', optimizer=dict(type='AdamW', lr=0.01))
test_dataloader = dict(
    batch_size=2,
    num_workers=0,
    dataset=dict(type='ToyDataset'),
    collate_fn=dict(type='default_collate'),
    sampler=dict(type='DefaultSampler', shuffle=False))
test_cfg = dict()
test_evaluator = dict(type='ToyMetric')
custom_hooks = [dict(type='ReportHook')]
