"""The `training` section: steps, batch size, optimizer, strategy, checkpoints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from components.base.config_section import Section, check_fields_of_kind
from components.base.errors import InputError
from components.trainer.optimizer_config import OptimizerConfig, ScheduleConfig
from components.trainer.remote.config import WhereConfig

BatchSize = Annotated[int, Field(gt=0, le=2**31 - 1)]
"""Number of rows in a batch. Sizes of tensors in TensorFlow's graphs are int32."""
ClassWeights = Literal["balanced"] | dict[str, PositiveFloat]
NewIds = Literal["mean", "unknown", "random"]


class PartitionConfig(Section):
    """How a table of IDs is divided among the ps."""

    partitioner: Literal["min_size", "max_size", "fixed", "hash"]
    """As `strategy.partitioner`."""
    shard_over_mb: PositiveFloat | None = None
    """min_size and max_size: as `strategy.shard_over_mb`, which it replaces."""
    shards: PositiveInt | None = None
    """fixed: number of shards, by default one per ps."""

    @model_validator(mode="after")
    def _check_options(self) -> PartitionConfig:
        if self.shards is not None and self.partitioner != "fixed":
            raise ValueError(f"shards: expected partitioner fixed, received {self.partitioner}; remove one of them")
        if self.shard_over_mb is not None and self.partitioner not in ("min_size", "max_size"):
            raise ValueError(
                f"shard_over_mb: expected partitioner min_size or max_size, received {self.partitioner}; remove it"
            )
        return self


class StrategyConfig(Section):
    """How training is distributed."""

    kind: Literal["none", "mirrored", "multi_worker", "parameter_server", "mesh", "tpu"] = "none"
    """none: one process, one device; mirrored: one process, all its GPUs; multi_worker: MultiWorkerMirroredStrategy,
    processes with synchronous steps, each with a mesh if `data`, `model` or `place` are set; parameter_server:
    ParameterServerStrategy, workers with asynchronous steps, and servers that hold the variables; mesh: one process
    with `data` times `model` devices, which are its GPUs or, on a machine without GPUs, logical devices of its CPU;
    tpu: a TPU."""
    workers: PositiveInt = 2
    """multi_worker and parameter_server: number of tasks that compute gradients."""
    max_workers: PositiveInt | None = None
    """parameter_server: maximum number of workers, which may join and leave during the run; `workers` are started.
    Every worker reads all examples, and takes the batches that the chief assigns to it. If it is not set, the workers
    do not change, and every worker reads a part of the examples."""
    min_workers: PositiveInt = 1
    """With `max_workers`: training waits while fewer workers are present."""
    ps: PositiveInt = 2
    """parameter_server: number of tasks that hold the variables."""
    partitioner: Literal["min_size", "max_size", "fixed", "hash"] = "min_size"
    """parameter_server: how the tables of IDs are sharded. min_size: one shard per ps, but no shard smaller than
    `shard_over_mb`; max_size: enough shards to keep every shard below `shard_over_mb`; fixed: `shards` shards; hash:
    every table is a whole, on a ps that the hash of its name chooses."""
    shard_over_mb: PositiveFloat = 1.0
    """The size that `partitioner` uses, in MiB."""
    shards: PositiveInt | None = None
    """With `partitioner: fixed`: number of shards, by default one per ps."""
    gradient_dtype: Literal["float32", "bfloat16"] = "float32"
    """parameter_server: the dtype in which workers send the gradients of tables of IDs to the ps. bfloat16 takes half
    of the bytes and keeps 8 bits of precision; the ps convert it, and update weights and moments in float32."""
    tables: dict[str, PartitionConfig] = Field(default_factory=dict)
    """parameter_server: table → how it is divided, instead of `partitioner`. A table is a variable that joins all
    columns of the same embedding width; `plan` prints the names, such as embedding_8 and wide."""

    data: PositiveInt = 1
    """mesh: number of parts of a batch; a copy of the network computes each part."""
    model: PositiveInt = 1
    """mesh: number of devices per copy, which divide the columns of dense layers, the filters of convolutions, and the
    tables of IDs."""
    place: dict[str, NonNegativeInt] = Field(default_factory=dict)
    """mesh: pattern of names of layers or variables, such as `hidden_1*` → number of the device that has these layers,
    or of the group of `model` devices. The first matching pattern counts; other layers follow the layers that they
    read."""
    micro_batches: PositiveInt = 1
    """With `place`: number of parts of a batch, which travel from device to device at the same time."""
    shard_optimizer: bool = False
    """mesh: each of the `data` copies keeps the optimizer's moments of some weights only, updates these, and gets the
    others from the other copies (ZeRO stage 1)."""

    @property
    def stages(self) -> int:
        """Number of stages of a network on a mesh; every stage has `model` devices."""
        return max(self.place.values(), default=0) + 1

    @property
    def has_mesh(self) -> bool:
        """Whether a process has a mesh of devices, alone or as one of several workers."""
        return self.kind == "mesh" or (self.kind == "multi_worker" and self.data * self.stages * self.model > 1)

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
        """Maximum number of workers; every worker has an address."""
        return self.max_workers or self.workers

    def partition(self, table: str) -> PartitionConfig:
        """Return how a table is divided."""
        default = PartitionConfig(partitioner=self.partitioner, shards=self.shards)
        partition = self.tables.get(table, default)
        if partition.partitioner not in ("min_size", "max_size") or partition.shard_over_mb is not None:
            return partition
        return partition.model_copy(update={"shard_over_mb": self.shard_over_mb})

    @model_validator(mode="after")
    def _in_order(self) -> StrategyConfig:
        names = ("max_workers", "tables", "gradient_dtype")
        kinds = {**dict.fromkeys(names, ("parameter_server",)), "place": ("mesh", "multi_worker")}
        check_fields_of_kind(self, kinds, self.kind)
        if self.shards is not None and self.partitioner != "fixed":
            raise ValueError(f"shards: expected partitioner fixed, received {self.partitioner}; remove one of them")
        if self.max_workers is not None and not self.min_workers <= self.workers <= self.max_workers:
            raise ValueError(
                "expected min_workers <= workers <= max_workers, "
                f"received {self.min_workers}, {self.workers}, {self.max_workers}"
            )
        expected = set(range(self.stages))
        if self.place and not expected - {0} <= set(self.place.values()) <= expected:
            raise ValueError(
                f"place: expected all numbers from 0 to {self.stages - 1}, received {sorted(set(self.place.values()))}"
            )
        if self.micro_batches > 1 and not self.place:
            raise ValueError(f"micro_batches: expected place with micro_batches {self.micro_batches}, received none")
        return self


class ThreadsConfig(Section):
    """Maximum numbers of threads of TensorFlow in each process that trains. By default, TensorFlow chooses them."""

    intra: PositiveInt | None = None
    """Number of threads of one operation, such as the multiplication of two matrices."""
    inter: PositiveInt | None = None
    """Number of operations at the same time. A task of a cluster has at least as many as its servers need."""


class CheckpointConfig(Section):
    """How often checkpoints are written, and how many are retained."""

    every_steps: PositiveInt = 500
    """Number of steps between two checkpoints. A restart repeats at most this number of steps."""
    keep: PositiveInt = 3
    """Number of checkpoints to retain. If the newest is damaged, an older checkpoint is restored."""
    background_over_mb: PositiveFloat | None = None
    """parameter_server: workers continue while a checkpoint of more MiB is written, for storage that is slower than the
    memory of the ps. A restart then repeats at most twice `every_steps`, and a ps needs memory for another copy. By
    default, and for checkpoints that early stopping measures, training waits for the checkpoint."""


class TensorBoardConfig(Section):
    """The files for TensorBoard in addition to the curves, which are always written."""

    histograms: bool = False
    """Histograms at every checkpoint, of all weights, and of the optimizer's first moments, which are means of the
    recent gradients."""
    gradients: bool = False
    """Histograms at every checkpoint of the gradients of one batch, always the same. They are computed in float32 on a
    copy of the network with the checkpoint's weights, for which the process that saves checkpoints needs memory."""
    graph: bool = False
    """The graph of the network."""
    projector: bool = False
    """The embeddings of the trained network, labeled with the values of their columns."""
    profile: tuple[PositiveInt, ...] = Field(default=(), max_length=2)
    """[first step, last step] of a window to profile. If empty, steps are profiled only on request, by
    `runs profile`."""

    @model_validator(mode="after")
    def _in_order(self) -> TensorBoardConfig:
        if self.profile and (len(self.profile) != 2 or self.profile[0] >= self.profile[1]):
            raise ValueError(f"profile: expected [first step, last step], received {list(self.profile)}")
        return self


class AugmentationConfig(Section):
    """Random changes of images in training, different in every epoch. Evaluation and predictions do not use them."""

    flip: bool = False
    """Mirror half of the images, left to right."""
    crop: float = Field(default=0.0, ge=0, lt=1)
    """Maximum share of height and width that is cut off; the remaining part is resized to the original size."""
    colour: float = Field(default=0.0, ge=0, lt=1)
    """Maximum change of brightness, as a share of white, and of contrast and saturation, as a factor."""
    erase: float = Field(default=0.0, ge=0, le=1)
    """Share of images in which a rectangle becomes grey. Its sides are 0.1 to 0.4 of the image's sides (Zhong et al.
    2017, Random Erasing Data Augmentation)."""
    mixup: float = Field(default=0.0, ge=0, le=10)
    """Blend each image with another image of its batch. The shares are drawn from Beta(mixup, mixup); the loss is the
    mean loss of both labels, weighted by the shares (Zhang et al. 2018, mixup: Beyond Empirical Risk Minimization).
    Usual values are 0.2 to 0.4, which leave most images nearly unchanged. 0 turns mixup off."""


class TrainingConfig(Section):
    """How the model is trained."""

    steps: PositiveInt = 1000
    """Number of optimizer steps."""
    max_minutes: PositiveFloat | None = None
    """Maximum time of the training, counted from its start or from its last restart. A network trains until then, and
    in a cluster until the next checkpoint; trees are compared for half of the time. The export comes afterwards. By
    default, `steps` and `early_stopping` alone end the training."""
    batch_size: BatchSize = 256
    """Number of examples in an optimizer step, over all replicas. Under parameter_server, in a step of one worker."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """The factor of an update, which `schedule` changes; by default, the initial value of a cosine that ends near 0."""
    schedule: ScheduleConfig = Field(default_factory=ScheduleConfig)
    optimizer: OptimizerConfig = Field(default_factory=OptimizerConfig)
    table_learning_rate: PositiveFloat | None = None
    """The constant learning rate of Adagrad (Duchi et al. 2011) for tables of IDs. If it is not set, they are trained
    with Adam, like all other weights. Recommended for large vocabularies: 0.05, and few passes over the rows."""
    weight_decay: float = Field(default=0.0, ge=0, lt=1)
    """Fraction of every matrix that a step subtracts, times the learning rate (Loshchilov & Hutter 2019, Decoupled
    Weight Decay Regularization). It does not apply to tables of IDs, biases and scales."""
    class_weights: ClassWeights | None = None
    """The weight of a row in the loss, by its label: balanced (as if all classes had the same number of rows), or value
    → weight, by default 1. Probabilities are then no longer calibrated."""
    label_weights: dict[str, PositiveFloat] = Field(default_factory=dict)
    """With `data.labels`: label → the weight of its loss, by default 1."""
    strategy: StrategyConfig = Field(default_factory=StrategyConfig)
    where: WhereConfig | None = None
    """A service that trains: the Trainer submits its tasks as a job and follows it, and the run continues with the
    job's model. The trials of a Tuner run there as well. By default, the machine of the node trains."""
    precision: Literal["float32", "mixed_bfloat16", "mixed_float16"] = "float32"
    """The dtype of the network's computations; variables, logits and the exported model are always float32."""
    jit_compile: bool = False
    """Compile the computation of gradients with XLA, which makes many small operations faster, and the first step much
    slower."""
    threads: ThreadsConfig = Field(default_factory=ThreadsConfig)
    steps_per_execution: PositiveInt = 10
    """Number of steps in one call of TensorFlow. A higher number makes steps faster, but delays the reaction to
    SIGTERM."""
    cache: Literal["auto", "memory", "pixels", "none"] = "auto"
    """memory: each worker keeps its parsed examples in memory, with encoded images; pixels: the same with decoded
    images, as 8-bit numbers; none: examples are read again in every epoch; auto: pixels, if twice their size fits into
    `memory_mb` and the training reads the rows twice or more; else memory, if the examples fit."""
    memory_mb: PositiveInt = 1024
    """Maximum size in MiB of the examples in memory, over all workers of this machine. It limits the examples that
    `cache: auto` keeps, which also take at most a quarter of the machine's memory, and the shuffle buffer of Parquet
    files. Loading TFRecords needs twice as much."""
    shuffle_buffer: PositiveInt = 100_000
    """Without the cache: number of examples in the shuffle buffer, reduced to what `memory_mb` allows. With the cache,
    all examples are shuffled."""
    warm_start: bool = False
    """Begin with the weights of the latest blessed model. Weights that it lacks begin from scratch, as do all weights
    if no model is blessed."""
    new_ids: NewIds = "mean"
    """With `warm_start`: the initial embedding of an ID that the previous model's vocabulary lacks. mean: the mean of
    the embeddings of known IDs; unknown: the embedding that the ID had as an unknown ID; random: as without a warm
    start."""
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    evaluator: bool = False
    """Evaluate the checkpoints on the eval split while training continues; in a cluster, in a separate task."""
    early_stopping: PositiveInt | None = None
    """Number of consecutive checkpoints without a lower loss on the validation part after which training ends; four are
    enough if the loss is more than a fifth above the lowest. The checkpoint with the lowest loss becomes the model. If
    it is not set, training runs to the last step."""
    validation: float = Field(default=0.15, gt=0, lt=1)
    """Share of the training split, at most 100,000 rows, that is held out: early stopping, the selection of a forest
    and the Tuner measure the loss on it. As in `data.split`, it contains rows stratified by the label, whole groups, or
    the newest rows. It is not the eval split, on which the Evaluator decides whether the model is pushed."""
    folds: int | None = Field(default=None, ge=2, le=20)
    """Number of folds. One network per fold is trained on the other folds, all in parallel; the exported model averages
    them. The loss of a row is measured by the network that did not train on it. For tables of a few thousand rows.
    With `data.split.by: time`, the folds have rolling origins: each is a period with `validation` of the rows, half of
    the rows in all at most, and models are only trained on earlier rows. A forest and its linear model are selected by
    the loss on all periods, then trained on all rows. Networks then ignore `folds`."""
    calibration: Literal["temperature", "isotonic", "none"] = "temperature"
    """How the model's probabilities are corrected, by the labels of the validation part or of all folds; has an effect
    with early stopping, folds, a forest or `evaluation.decide`. temperature: divide the logits by a number; isotonic:
    replace the logits of a binary label by an increasing function of them, for thousands of rows."""
    max_restarts: int = Field(default=5, ge=0)
    """Maximum number of restarts of a local cluster without a new checkpoint in between, before the run fails."""
    heartbeat_seconds: float = Field(default=60.0, ge=3)
    """Time without a heartbeat after which a task of a local cluster is killed and restarted, in seconds."""
    tensorboard: TensorBoardConfig = Field(default_factory=TensorBoardConfig)
    eval_steps: PositiveInt = 100
    """With your own run_fn: the value of its `eval_steps`, the number of batches of the eval split per evaluation."""
    augmentation: AugmentationConfig = Field(default_factory=AugmentationConfig)
    """Random changes of images."""
    seed: int = Field(default=1, ge=0)
    """Seed of the initial weights, of shuffling and of augmentation."""

    @property
    def trained_rows(self) -> int:
        """Number of rows that the training reads; a row counts in every epoch."""
        return self.steps * self.batch_size

    def replica_rows(self, replicas: int) -> int:
        """Return the number of rows in a batch of one replica.

        A synchronous step divides `batch_size` among the replicas. Under parameter_server a step belongs to a single
        worker, which uses the complete batch.

        Args:
          replicas: Number of replicas that take part in a synchronous step, `num_replicas_in_sync` of the strategy.

        Raises:
          InputError: If `batch_size` is not a multiple of the replicas.
        """
        if self.strategy.kind == "parameter_server":
            return self.batch_size
        if self.batch_size % replicas:
            raise InputError(
                f"training.batch_size: expected a multiple of the number of replicas, {replicas}, "
                f"received {self.batch_size}",
                f"choose a multiple of {replicas}",
            )
        return self.batch_size // replicas

    @model_validator(mode="after")
    def _check_combinations(self) -> TrainingConfig:
        strategy = self.strategy
        if self.schedule.warm_up_steps >= self.steps:
            raise ValueError(
                f"schedule.warm_up_steps: expected fewer than the {self.steps} steps, "
                f"received {self.schedule.warm_up_steps}"
            )
        if self.jit_compile and (strategy.kind == "parameter_server" or strategy.has_mesh):
            name = strategy.kind if strategy.kind == "parameter_server" else "mesh"
            raise ValueError(
                f"jit_compile: expected strategy none, mirrored, multi_worker or tpu, received {name}, which "
                "reads variables of several devices"
            )
        if self.jit_compile and self.optimizer.accumulate > 1:
            raise ValueError("jit_compile: expected optimizer.accumulate 1, whose loop XLA cannot compile; remove one")
        kind = self.optimizer.kind
        if self.table_learning_rate is not None and kind not in ("adam", "adamw"):
            raise ValueError(f"table_learning_rate: expected optimizer adam or adamw, received {kind}; remove it")
        if kind == "adamw" and not self.weight_decay:
            raise ValueError("optimizer adamw: expected a weight_decay above 0, as 0.01; received 0")
        if kind == "ftrl" and self.warm_start:
            raise ValueError("optimizer ftrl: expected warm_start false, because it forgets initial weights")
        if self.new_ids != "mean" and not self.warm_start:
            raise ValueError(f"new_ids has an effect with warm_start, received {self.new_ids}; remove it")
        if self.where is not None and strategy.kind == "tpu":
            raise ValueError("where: a job does not support a TPU; remove it, and run on a TPU VM")
        if self.where is not None and self.where.kind == "trainjob" and strategy.is_elastic:
            # Kubeflow Trainer sets the completions of each Job to its parallelism.
            raise ValueError("where.kind: expected jobset with strategy.max_workers, received trainjob")
        if strategy.kind == "multi_worker" and self.batch_size % strategy.workers:
            raise ValueError(
                f"batch_size is shared by the workers of multi_worker; expected a multiple of {strategy.workers}, "
                f"received {self.batch_size}"
            )
        workers = strategy.workers if strategy.is_cluster else 1
        parts = strategy.data * strategy.micro_batches * workers
        if strategy.has_mesh and self.batch_size % parts:
            names = "strategy.data" + (" times strategy.micro_batches" if strategy.micro_batches > 1 else "")
            names += " times strategy.workers" if workers > 1 else ""
            raise ValueError(
                f"batch_size is divided into {names} parts; expected a multiple of {parts}, received {self.batch_size}"
            )
        if strategy.micro_batches > 1 and self.optimizer.accumulate > 1:
            raise ValueError(
                f"strategy.micro_batches: expected optimizer.accumulate 1, received {self.optimizer.accumulate}; both "
                "divide a batch, remove one"
            )
        if strategy.place and self.folds:
            raise ValueError(
                f"strategy.place: expected a single network, received folds {self.folds}, whose layers have the same "
                "names; remove one"
            )
        if strategy.shard_optimizer and (not strategy.has_mesh or self.optimizer.clip_norm is not None):
            raise ValueError(
                "strategy.shard_optimizer: expected kind mesh, and an optimizer without clip_norm, which needs all "
                f"gradients; received {strategy.kind} and clip_norm {self.optimizer.clip_norm}"
            )
        if strategy.has_mesh and self.precision != "float32":
            raise ValueError(f"precision: expected float32, which a mesh computes in, received {self.precision}")
        if strategy.kind == "parameter_server" and self.precision == "mixed_float16":
            raise ValueError("mixed_float16 scales its loss, which parameter_server cannot do; choose mixed_bfloat16")
        return self
