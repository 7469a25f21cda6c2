"""The process that trains variants further: it fine-tunes the model, or trains students that learn from it.

It is a separate process because it imports libraries that other nodes do not use, and may run out of memory. The
request contains:

    plan             The TrainingPlan of the full model.
    model            Folder of the trained model.
    teachers         Version → folder of the teacher. The key "None" is the model of the run.
    transform_graph  Folder of Transform's graph.
    train, eval      Patterns of the transformed examples.
    folder           Folder with `eval.npz`, the inputs of the eval split. The results are written to it.
    variants         A list of VariantConfigs.

For every variant, the process writes `NAME.model`, a SavedModel with the signature `transformed`. For a student, it
also writes `NAME.seeds.npz` with the predictions of the rows of eval.npz, after training with the teacher (`taught`)
and without it (`alone`); both are [seeds, rows, ...]. The last file is `NAME.trained.json`. It contains `error` if the
variant could not be trained, and otherwise `layers` and `left_out` if weights are pruned, clustered or quantized, and
`removed` and `whole` if channels are removed.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras
from tfx.components.trainer.fn_args_utils import FnArgs

from components.base.files import write_atomically
from components.compat.tensorflow import clone_lambda_layers, leave_unconverted
from components.edge import distillation, fine_tuning
from components.edge.channel_pruning import remove_channels
from components.edge.config import VariantConfig
from components.edge.fine_tuning import NotMadeError
from components.trainer import warm_start
from components.trainer.export import create_transformed_signature
from components.trainer.input_columns import InputShard
from components.trainer.optimizer import create_optimizer
from components.trainer.plan import TrainingPlan
from components.trainer.training import Training

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
SEEDS = 3
"""Number of seeds with which a student is trained."""
_FINE_TUNING_FRACTION = 0.25
"""Steps and learning rate of fine-tuning, as a fraction of the training's."""
_BATCH = 1024
"""Number of rows that are predicted at once."""


def load() -> Callable[[dict[str, Any]], None]:
    """Prepare TensorFlow, and return the function that handles the request."""
    # Hide accelerators, because TensorFlow Lite's files run on a CPU.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    logging.basicConfig(level=logging.INFO)
    clone_lambda_layers()
    leave_unconverted("tf_keras")
    return main


def main(request: dict[str, Any]) -> None:
    """Train the variants of a request; see the module's docstring."""
    plan = TrainingPlan.model_validate(request["plan"])
    folder = Path(request["folder"])
    for fields in request["variants"]:
        variant = VariantConfig.model_validate(fields)
        with tempfile.TemporaryDirectory() as scratch:
            try:
                result = _VariantTraining(variant, plan, request, scratch).run(folder)
            except NotMadeError as error:
                logging.exception("%s cannot be trained", variant.name)
                result = {"error": error.headline[:300]}
        write_atomically(folder / f"{variant.name}.trained.json", json.dumps(result))


class _VariantTraining:
    """The training of a variant.

    Args:
      variant: Settings of the variant.
      plan: TrainingPlan of the full model.
      request: The request; see the module's docstring.
      scratch: Folder for temporary files.
    """

    def __init__(self, variant: VariantConfig, plan: TrainingPlan, request: dict[str, Any], scratch: str) -> None:
        # Disable mixup, which produces two labels per row: Keras accepts only one.
        unblended = plan.training.augmentation.model_copy(update={"mixup": 0.0})
        plan = plan.model_copy(update={"training": plan.training.model_copy(update={"augmentation": unblended})})
        if variant.student:
            training = plan.training.model_copy(update={"folds": None})
            plan = plan.model_copy(update={"model": variant.student, "training": training})
        self._variant, self._plan, self._request = variant, plan, request
        arguments = {
            "train_files": request["train"],
            "eval_files": request["eval"],
            "transform_graph_path": request["transform_graph"],
            "model_run_dir": scratch,
            "custom_config": {"checkpoints": f"{scratch}/checkpoints"},
        }
        self._training = Training(plan, FnArgs(**arguments))

    def run(self, folder: Path) -> dict[str, Any]:
        """Train the variant, and write its model.

        Args:
          folder: Folder with `eval.npz`, to which the results are written.

        Returns:
          Content of `NAME.trained.json`.

        Raises:
          NotMadeError: If the variant cannot be created from this model.
        """
        name, variant = self._variant.name, self._variant
        network = self._distill(folder) if variant.student else self._restore()
        result: dict[str, Any] = {}
        steps = variant.steps or math.ceil(_FINE_TUNING_FRACTION * self._plan.training.steps)
        rate = variant.learning_rate or _FINE_TUNING_FRACTION * self._plan.training.learning_rate
        fit = functools.partial(self._fit, steps=steps, rate=rate, seed=self._plan.training.seed, has_teacher=True)
        if variant.channels:
            smaller = remove_channels(network, variant.channels)
            network, result = smaller.network, {"removed": smaller.removed, "whole": smaller.whole}
            fit(network, [])
        if variant.sparsity or variant.clusters or variant.trains_rounding:
            result["layers"] = [layer.name for layer in fine_tuning.find_optimized_layers(network)]
            result["left_out"] = [layer.name for layer in fine_tuning.find_other_layers(network)]
            network = fine_tuning.fine_tune(network, variant, steps, fit)
        module = tf.Module()
        module.weights = network.variables
        signature = self._create_signature(network)
        tf.saved_model.save(module, str(folder / f"{name}.model"), signatures={"transformed": signature})
        return result

    def _restore(self) -> tf_keras.Model:
        network = self._training.network.build()
        warm_start.restore(network, self._request["model"])
        return network

    def _distill(self, folder: Path) -> tf_keras.Model:
        """Train a student with and without the teacher for every seed, and write the predictions of all students.

        Returns:
          The student of the first seed that was trained with the teacher.
        """
        config = self._plan.training
        steps, rate = self._variant.steps or config.steps, self._variant.learning_rate or config.learning_rate
        students: list[tf_keras.Model] = []
        predictions: dict[str, list[npt.NDArray[Any]]] = {"taught": [], "alone": []}
        for seed in range(config.seed, config.seed + SEEDS):
            for name, of_seeds in predictions.items():
                tf_keras.utils.set_random_seed(seed)
                network = self._training.network.build()
                has_teacher = name == "taught"
                self._fit(network, [], steps=steps, rate=rate, seed=seed, has_teacher=has_teacher)
                of_seeds.append(self._predict(network, folder))
                if has_teacher:
                    students.append(network)
        arrays = {name: np.stack(of_seeds) for name, of_seeds in predictions.items()}
        np.savez(folder / f"{self._variant.name}.seeds.npz", **arrays)
        return students[0]

    def _fit(
        self,
        network: tf_keras.Model,
        callbacks: list[tf_keras.callbacks.Callback],
        steps: int,
        rate: float,
        seed: int,
        has_teacher: bool,
    ) -> None:
        config, head = self._plan.training, self._training.head
        tf_keras.utils.set_random_seed(seed)
        rows = self._training.rows.input_pipeline().dataset(InputShard())
        # Keras divides the weighted sum of the losses by the number of rows, not by the sum of the weights.
        rows = rows.map(lambda x, y, *weight: (x, y, *(values / head.mean_weight for values in weight)))
        loss: Loss = head.losses
        if has_teacher and self._variant.student:
            teacher = self._request["teachers"][str(self._variant.teacher)]
            rows, loss = distillation.add_teacher(rows, head, teacher, self._plan.features.task, self._variant)
        # Wrap the loss in a lambda, because Keras inspects the names of a function's arguments.
        network.compile(
            create_optimizer(rate, config.weight_decay),
            loss=lambda label, logits: loss(label, logits),
        )
        network.fit(rows, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
        if not all(np.isfinite(weights).all() for weights in network.get_weights()):
            raise NotMadeError(
                f"expected finite weights after {steps} steps, received NaN or infinite values",
                f"lower learning_rate of the variant, which is {rate:g}",
            )

    def _create_signature(self, network: tf_keras.Model) -> tf.types.experimental.GenericFunction:
        return create_transformed_signature(network, self._training.calibrate_outputs(network), self._plan.features)

    def _predict(self, network: tf_keras.Model, folder: Path) -> npt.NDArray[Any]:
        predict = self._create_signature(network)
        names = [tensor.name for tensor in network.inputs]
        with np.load(folder / "eval.npz") as rows:
            columns = {name: rows[name] for name in names}
        count = len(columns[names[0]])
        parts = [
            predict({name: tf.constant(values[start : start + _BATCH]) for name, values in columns.items()})
            for start in range(0, count, _BATCH)
        ]
        return np.concatenate([next(iter(part.values())).numpy() for part in parts])
