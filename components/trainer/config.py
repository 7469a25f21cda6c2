"""The `training` section: steps, batch size, optimizer, strategy, checkpoints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from components.base.config_section import Section
from components.trainer.remote.config import WhereConfig

BatchSize = Annotated[int, Field(gt=0, le=2**31 - 1)]
"""Number of rows in a batch. Sizes of tensors in TensorFlow's graphs are int32."""
ClassWeights = Literal["balanced"] | dict[str, PositiveFloat]
NewIds = Literal["mean", "unknown", "random"]


class StrategyConfig(Section):
    """How training is distributed."""

    kind: Literal["none", "mirrored", "multi_worker", "parameter_server", "mesh", "tpu"] = "none"
    """none: one process, one device; mirrored: one process, all its GPUs; multi_worker: MultiWorkerMirroredStrategy,
    processes with synchronous steps; parameter_server: ParameterServerStrategy, workers with asynchronous steps, and
    servers that hold the variables; mesh: one process, `data` times `model` devices, its GPUs or, without any, as many
    logical devices of its CPU; tpu: a TPU."""
    workers: PositiveInt = 2
    """multi_worker and parameter_server: tasks that compute gradients."""
    max_workers: PositiveInt | None = None
    """parameter_server: workers may join and leave during the run, up to this number; `workers` are started. All
    examples are read by every worker, which takes the batches that the chief assigns to it. If it is not set, the
    workers are always the same ones, and each has a part of the examples."""
    min_workers: PositiveInt = 1
    """With `max_workers`: training waits while fewer workers are present."""
    ps: PositiveInt = 2
    """parameter_server: tasks that hold the variables."""
    partitioner: Literal["min_size", "max_size", "fixed"] = "min_size"
    """parameter_server: how the tables of ids are sharded. min_size: one shard per ps, none smaller than
    `shard_over_mb`; max_size: as many shards as keep each below `shard_over_mb`; fixed: always one shard per ps."""
    shard_over_mb: PositiveFloat = 1.0
    """The size that `partitioner` uses, in MiB."""

    data: PositiveInt = 1
    """mesh: parts of a batch, each computed by a copy of the network."""
    model: PositiveInt = 1
    """mesh: devices of a copy, among which the columns of dense layers and of tables of ids are divided."""

    @property
    def is_cluster(self) -> bool:
        """Whether the strategy needs several processes."""
        return self.kind in ("multi_worker", "parameter_server")

    @property
    def is_elastic(self) -> bool:
        """Whether workers may join and leave."""
        return self.max_workers is not None

    @property
    def most_workers(self) -> int:
        """How many workers there can be; each has an address."""
        return self.max_workers or self.workers

    @model_validator(mode="after")
    def _in_order(self) -> StrategyConfig:
        if self.max_workers is not None:
            if self.kind != "parameter_server":
                raise ValueError(f"max_workers: expected kind parameter_server, received {self.kind}")
            if not self.min_workers <= self.workers <= self.max_workers:
                raise ValueError(
                    "expected min_workers <= workers <= max_workers, "
                    f"received {self.min_workers}, {self.workers}, {self.max_workers}"
                )
        return self


class CheckpointConfig(Section):
    """How often checkpoints are written, and how many are retained."""

    every_steps: PositiveInt = 500
    """Steps between two checkpoints; a restart repeats at most as many steps."""
    keep: PositiveInt = 3
    """Checkpoints that are retained; an older one is restored if the newest is damaged."""
    background_over_mb: PositiveFloat | None = None
    """parameter_server: workers go on while a checkpoint of more MiB is written, for storage that is slower than the
    memory of the ps; a restart then repeats at most twice `every_steps`, and a ps needs memory for one more copy.
    Default, and for checkpoints that early stopping measures: it is written before training goes on."""


class TensorBoardConfig(Section):
    """What is written besides the curves, which are always written."""

    histograms: bool = False
    """Histograms of all weights at every checkpoint."""
    profile: tuple[PositiveInt, ...] = Field(default=(), max_length=2)
    """[first step, last step] of a window to profile; empty: no profile."""

    @model_validator(mode="after")
    def _in_order(self) -> TensorBoardConfig:
        if self.profile and (len(self.profile) != 2 or self.profile[0] >= self.profile[1]):
            raise ValueError(f"profile: expected [first step, last step], received {list(self.profile)}")
        return self


class AugmentationConfig(Section):
    """Random changes of images in training, different in every epoch; evaluation and predictions have none."""

    flip: bool = False
    """Half of the images are mirrored, left to right."""
    crop: float = Field(default=0.0, ge=0, lt=1)
    """The greatest share of height and width that is cut off; the rest is resized to the whole."""
    colour: float = Field(default=0.0, ge=0, lt=1)
    """The greatest change of brightness, as a share of white, and of contrast and saturation, as a factor."""
    erase: float = Field(default=0.0, ge=0, le=1)
    """The share of images in which a rectangle of 0.1 to 0.4 of each side becomes grey (Zhong et al. 2017, Random
    Erasing Data Augmentation)."""
    mixup: float = Field(default=0.0, ge=0, le=10)
    """Each image is blended with another one of its batch; the share of either is drawn from Beta(mixup, mixup), and
    its loss is that of both labels, with the same shares (Zhang et al. 2018, mixup: Beyond Empirical Risk
    Minimization). 0.2 to 0.4 are usual: most images are then nearly unchanged. 0: none are blended."""


class TrainingConfig(Section):
    """How the model is trained."""

    steps: PositiveInt = 1000
    """Number of optimizer steps."""
    batch_size: BatchSize = 256
    """Examples per optimizer step, over all replicas together. Under parameter_server a step is one worker's."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """The initial value of a cosine schedule that ends near 0."""
    table_learning_rate: PositiveFloat | None = None
    """The constant learning rate of Adagrad (Duchi et al. 2011) for tables of ids. If it is not set, they are trained
    with Adam, like all other weights. For large vocabularies: 0.05, and few passes over the rows."""
    weight_decay: float = Field(default=0.0, ge=0, lt=1)
    """The part of each matrix that a step subtracts, times the learning rate (Loshchilov & Hutter 2019, Decoupled
    Weight Decay Regularization). It does not apply to tables of ids, biases and scales."""
    class_weights: ClassWeights | None = None
    """The weight of a row in the loss, by its label: balanced (as if all classes had the same number of rows), or value
    → weight, by default 1. Probabilities are then no longer calibrated."""
    label_weights: dict[str, PositiveFloat] = Field(default_factory=dict)
    """With `data.labels`: label → the weight of its loss, by default 1."""
    strategy: StrategyConfig = Field(default_factory=StrategyConfig)
    where: WhereConfig | None = None
    """A service that trains: the Trainer submits its tasks as a job, follows it, and the run goes on with its model.
    Default: the Trainer's own machine."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """The dtype of the network's computations; variables, logits and the exported model are always float32."""
    steps_per_execution: PositiveInt = 10
    """Steps in one call of TensorFlow; more steps need less time each, and SIGTERM is noticed later."""
    cache: Literal["auto", "memory", "pixels", "none"] = "auto"
    """memory: each worker keeps its parsed examples in memory, with encoded images; pixels: the same with decoded
    images, as 8-bit numbers; none: examples are read again in every epoch; auto: pixels, if twice their size fits into
    `memory_mb` and the training reads the rows twice or more; else memory, if the examples fit."""
    memory_mb: PositiveInt = 1024
    """The greatest size in MiB of the examples in memory, of all workers of this machine: of those that `cache: auto`
    keeps, which are at most a quarter of the machine's memory too, and of the shuffle buffer of Parquet files. While
    TFRecords are loaded there are two copies of them."""
    shuffle_buffer: PositiveInt = 100_000
    """Without the cache: the number of examples in the shuffle buffer, or fewer if that many of them are larger than
    `memory_mb`. With the cache all examples are shuffled."""
    warm_start: bool = False
    """Begins with the weights of the latest blessed model. Weights that it does not have, or all if no model is
    blessed, begin from scratch."""
    new_ids: NewIds = "mean"
    """With `warm_start`: the vectors that values begin with which are not in the vocabulary of that model. mean: the
    mean vector of those that are; unknown: the vector that the value had as an unknown one; random: as without a warm
    start."""
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    evaluator: bool = False
    """Evaluates the checkpoints on the eval split while training goes on; in a cluster, in a separate task."""
    early_stopping: PositiveInt | None = None
    """Training ends after this number of consecutive checkpoints without a lower loss on the validation part. The model
    is the one with the lowest loss."""
    validation: float = Field(default=0.15, gt=0, lt=1)
    """The share of the training split, at most 100,000 rows, that early stopping, the choice of a forest and the Tuner
    measure the loss on, and that they do not train on: rows stratified by the label, whole groups, or the newest rows,
    as `data.split` is. Not the eval split, on which the Evaluator decides whether the model is pushed."""
    folds: int | None = Field(default=None, ge=2, le=20)
    """Cross-validation instead of one validation part: all rows are divided into so many folds, and as many networks
    are trained, at the same time, each without one of them. The loss of a row is that of the network that does not see
    it, and the model is the mean of all. For tables of some thousand rows. By time there is one validation part."""
    calibration: Literal["temperature", "isotonic", "none"] = "temperature"
    """What corrects the model's probabilities, by the labels of the validation part or of all folds; nothing, if there
    are neither early stopping, nor folds, nor a forest. temperature: the logits are divided by a number; isotonic:
    those of a binary label are replaced by an increasing function of them, for thousands of rows."""
    max_restarts: int = Field(default=5, ge=0)
    """Restarts of a local cluster without a new checkpoint in between; after more the run fails."""
    heartbeat_seconds: float = Field(default=60.0, ge=3)
    """A task of a local cluster that sends no heartbeat for this time is killed and restarted."""
    tensorboard: TensorBoardConfig = Field(default_factory=TensorBoardConfig)
    eval_steps: PositiveInt = 100
    """With your own run_fn: the value of its `eval_steps`, the batches of the eval split per evaluation."""
    augmentation: AugmentationConfig = Field(default_factory=AugmentationConfig)
    """Random changes of images."""
    seed: int = Field(default=1, ge=0)
    """Seed of the initial weights, of shuffling and of augmentation."""

    @model_validator(mode="after")
    def _check_combinations(self) -> TrainingConfig:
        strategy = self.strategy
        if self.new_ids != "mean" and not self.warm_start:
            raise ValueError(f"new_ids has an effect with warm_start, received {self.new_ids}; remove it")
        if self.where is not None and strategy.kind == "tpu":
            raise ValueError("where: a job has no TPU; remove it, and run on a TPU VM")
        if strategy.kind == "multi_worker" and self.batch_size % strategy.workers:
            raise ValueError(
                f"batch_size is shared by the workers of multi_worker; expected a multiple of {strategy.workers}, "
                f"received {self.batch_size}"
            )
        if strategy.kind == "mesh" and self.batch_size % strategy.data:
            raise ValueError(
                f"batch_size is divided into strategy.data parts; expected a multiple of {strategy.data}, "
                f"received {self.batch_size}"
            )
        if strategy.kind == "mesh" and self.precision != "float32":
            raise ValueError(f"precision: expected float32, which a mesh computes in, received {self.precision}")
        if strategy.kind == "parameter_server" and self.precision == "mixed_float16":
            raise ValueError("mixed_float16 scales its loss, which parameter_server cannot do; choose mixed_bfloat16")
        return self
