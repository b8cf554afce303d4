"""FSDP on the CPU, for tests: Accelerate shards only over accelerators, but torch can also shard over gloo.

Import this module before Accelerate is used; the sharding itself is done by Accelerate and torch.
"""

import os
from typing import Any

from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DistributedType

_original = AcceleratorState.__init__


def _init(self: AcceleratorState, *args: Any, fsdp_plugin: Any = None, **kwargs: Any) -> None:
    _original(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
    if self.distributed_type == DistributedType.MULTI_CPU and fsdp_plugin is not None:
        self.distributed_type = DistributedType.FSDP
        if self.mixed_precision != "no":
            fsdp_plugin.set_mixed_precision(self.mixed_precision)
        self.fsdp_plugin = fsdp_plugin
        PartialState._shared_state["distributed_type"] = DistributedType.FSDP


if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
    AcceleratorState.__init__ = _init
