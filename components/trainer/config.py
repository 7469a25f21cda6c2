"""The `training` section: how long, how large, how fast, and on how many processes."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from components.section import Section

ClassWeights = Literal["balanced"] | dict[str, PositiveFloat]


class StrategyConfig(Section):
    """How training is spread out."""

    kind: Literal["none", "mirrored", "multi_worker", "parameter_server", "tpu"] = "none"
    """none: one process, one device; mirrored: one process, all its GPUs; multi_worker: MultiWorkerMirroredStrategy,
    processes in step; parameter_server: ParameterServerStrategy, workers on their own beside servers that hold the
    variables; tpu: a TPU."""
    workers: PositiveInt = 2
    """multi_worker and parameter_server: tasks that compute gradients."""
    ps: PositiveInt = 2
    """parameter_server: tasks that hold the variables."""
    partitioner: Literal["min_size", "max_size", "fixed"] = "min_size"
    """parameter_server: how the tables of ids are cut into shards. min_size: one shard per ps, none smaller than
    `shard_over_mb`; max_size: as many shards as keep each below `shard_over_mb`; fixed: one shard per ps, always."""
    shard_over_mb: PositiveFloat = 1.0
    """The size that `partitioner` goes by, in MiB."""

    @property
    def is_cluster(self) -> bool:
        """Whether it takes several processes."""
        return self.kind in ("multi_worker", "parameter_server")


class CheckpointConfig(Section):
    """What a killed task costs at most."""

    every_steps: PositiveInt = 500
    """Steps between two checkpoints; a restart repeats no more than these."""
    keep: PositiveInt = 3
    """Checkpoints that are kept; an older one steps in when the newest is damaged."""


class TensorBoardConfig(Section):
    """What is logged beside the curves, which are always there."""

    histograms: bool = False
    """Histograms of all weights at every checkpoint."""
    profile: tuple[PositiveInt, ...] = Field(default=(), max_length=2)
    """[first step, last step] of a window to profile; none without them."""

    @model_validator(mode="after")
    def _in_order(self) -> TensorBoardConfig:
        if self.profile and (len(self.profile) != 2 or self.profile[0] >= self.profile[1]):
            raise ValueError(f"profile: expected [first step, last step], received {list(self.profile)}")
        return self


class TrainingConfig(Section):
    """How the model is trained."""

    steps: PositiveInt = 1000
    """Optimizer steps in all."""
    batch_size: PositiveInt = 256
    """Examples per optimizer step, over all replicas together. Under parameter_server a step is one worker's."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """The peak of a cosine schedule that ends near 0."""
    table_learning_rate: PositiveFloat | None = None
    """A constant rate at which tables of ids are learned, by Adagrad (Duchi et al. 2011). Without it they are learned
    as all else is, by Adam. For large vocabularies: 0.05, and few passes over the rows."""
    weight_decay: float = Field(default=0.0, ge=0, lt=1)
    """Share of each matrix's weights that a step takes away, times the learning rate (Loshchilov & Hutter 2019,
    Decoupled Weight Decay Regularization). Tables of ids, biases and scales keep theirs."""
    class_weights: ClassWeights | None = None
    """What a row counts in the loss, by its label: balanced (as if all classes had equally many rows), or value →
    weight, 1 where none is given. Probabilities are then no longer calibrated."""
    strategy: StrategyConfig = Field(default_factory=StrategyConfig)
    cluster: Literal["local", "tfjob", "vertex", "given"] = "local"
    """Who starts the tasks. local: the run itself, on this machine; tfjob, vertex: Kubernetes or Vertex AI, from what
    `runner.py manifest` writes; given: whoever has set TF_CONFIG."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """What the network computes in; variables, logits and the exported model stay float32."""
    steps_per_execution: PositiveInt = 10
    """Steps in one call of TensorFlow; more cost less and are noticed later."""
    cache: Literal["auto", "memory", "none"] = "auto"
    """memory: parsed examples stay in memory, each worker's own; none: they are read anew in every epoch; auto: in
    memory if they take no more than a quarter of it."""
    shuffle_buffer: PositiveInt = 100_000
    """Without the cache: examples held in memory to shuffle from. With it the order is drawn over all."""
    warm_start: bool = False
    """Begins with the weights of the latest blessed model, as far as it has the same; else, and without one, from
    scratch."""
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    evaluator: bool = False
    """Evaluates every checkpoint on the eval split while training goes on; in a cluster, in a task of its own."""
    early_stopping: PositiveInt | None = None
    """Looks at the eval split, one at every checkpoint, without a lower loss after which training ends. The model is
    then that of the lowest loss. In one process only."""
    max_restarts: int = Field(default=5, ge=0)
    """Restarts of a local cluster without a new checkpoint in between; after that the run fails."""
    heartbeat_seconds: float = Field(default=60.0, ge=3)
    """A task of a local cluster that shows no sign of life for so long is killed, and so restarted."""
    tensorboard: TensorBoardConfig = Field(default_factory=TensorBoardConfig)
    eval_steps: PositiveInt = 100
    """With your own run_fn: the `eval_steps` it is handed, batches of the eval split for a look while it trains."""
    seed: int = Field(default=1, ge=0)
    """Seed of weights and shuffling."""

    @model_validator(mode="after")
    def _fits_together(self) -> TrainingConfig:
        strategy = self.strategy
        if strategy.kind == "multi_worker" and self.batch_size % strategy.workers:
            raise ValueError(
                f"batch_size is shared by the workers of multi_worker; expected a multiple of {strategy.workers}, "
                f"received {self.batch_size}"
            )
        if strategy.is_cluster and self.early_stopping:
            raise ValueError(
                f"early_stopping is for training in one process, and {strategy.kind} takes several; leave one out"
            )
        if strategy.kind == "parameter_server" and self.precision == "mixed_float16":
            raise ValueError("mixed_float16 scales its loss, which parameter_server cannot do; choose mixed_bfloat16")
        return self
