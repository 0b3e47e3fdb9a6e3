"""RuntimeInfoHook that leaves the losses on the device until they are read."""

from typing import Any

from mmengine.hooks import RuntimeInfoHook as StockRuntimeInfoHook

from mmturbox.registry import HOOKS

from .deferred_scalars import adopt_buffers, defer_scalars


@HOOKS.register_module()
class RuntimeInfoHook(StockRuntimeInfoHook):
    """MMEngine's hook without a host read in iterations that do not log.

    Whoever reads the message hub sees the numbers of the stock hook, and
    checkpoints hold stock history buffers. Appending to a long history no
    longer copies it, for every key of the hub.
    """

    def after_train_iter(self,
                         runner: Any,
                         batch_idx: int,
                         data_batch: Any = None,
                         outputs: dict | None = None) -> None:
        hub = runner.message_hub
        if outputs is not None:
            defer_scalars(hub, {f'train/{k}': v for k, v in outputs.items()})
        adopt_buffers(hub)
