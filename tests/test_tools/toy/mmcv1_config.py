# As configs were written for mmcv 1.x.
plugin_dir = 'projects/mmdet3d_plugin/'
data = dict(samples_per_gpu=1, train=dict(type='ToyDataset'))
optimizer = dict(type='AdamW', lr=2e-4)
optimizer_config = dict(grad_clip=dict(max_norm=35))
total_epochs = 24
