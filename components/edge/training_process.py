"""A program that trains variants further: fine-tuning of the model, and students that learn from it.

    python -m components.edge.training_process < request.json

A process of its own, since it loads another library than the other nodes, and may need more memory than there is. The
request has `plan`, a TrainingPlan; `model`, the folder of the trained model; `teachers`, version → folder;
`transform_graph`; `train` and `eval`, patterns of transformed examples; `folder`, with `eval.npz`, the inputs of the
eval split's rows; and `variants`, each a VariantConfig.

For each variant it writes `NAME.model`, a SavedModel with the signature `transformed`; of a student, `NAME.seeds.npz`,
the predictions of the rows of eval.npz, `taught` by the teacher and `alone`, each [seeds, rows, ...]; and last
`NAME.trained.json`, with `error`; or with `layers` and `left_out`, of a variant that is pruned, clustered or rounded.
"""

from __future__ import annotations

import functools
import json
import logging
import math
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras
from tfx.components.trainer.fn_args_utils import FnArgs

from components.compat.tensorflow import clone_lambda_layers, leave_unconverted
from components.edge import distillation, fine_tuning
from components.edge.config import VariantConfig
from components.edge.fine_tuning import NotMadeError
from components.files import write_atomically
from components.processes import signal_at_parents_death
from components.trainer import warm_start
from components.trainer.export import transformed_signature
from components.trainer.input_columns import InputShard
from components.trainer.optimizer import adam
from components.trainer.plan import TrainingPlan
from components.trainer.run_fn import Training

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
SEEDS = 3
_PART = 0.25
"""The steps and the learning rate of fine-tuning, as a part of the training's."""
_BATCH = 1024


def main(request: dict[str, Any]) -> None:
    """Trains the variants."""
    plan = TrainingPlan.model_validate(request["plan"])
    folder = Path(request["folder"])
    for each in request["variants"]:
        variant = VariantConfig.model_validate(each)
        with tempfile.TemporaryDirectory() as scratch:
            try:
                result = _Variant(variant, plan, request, scratch).make(folder)
            except NotMadeError as error:
                logging.exception("%s is not made", variant.name)
                result = {"error": error.headline[:300]}
        write_atomically(folder / f"{variant.name}.trained.json", json.dumps(result))


class _Variant:
    """The training of a variant.

    Args:
      variant: what to make.
      plan: of the full model.
      request: see the module.
      scratch: a folder.
    """

    def __init__(self, variant: VariantConfig, plan: TrainingPlan, request: dict[str, Any], scratch: str) -> None:
        # Keras takes one label of each row.
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

    def make(self, folder: Path) -> dict[str, Any]:
        """Trains, and writes the results; returns the content of `NAME.trained.json`."""
        name, variant = self._variant.name, self._variant
        network = self._distilled(folder) if variant.student else self._restored()
        treated: dict[str, Any] = {}
        if variant.sparsity or variant.clusters or variant.trains_rounding:
            treated["layers"] = [layer.name for layer in fine_tuning.covered(network)]
            treated["left_out"] = [layer.name for layer in fine_tuning.left_out(network)]
            steps = variant.steps or math.ceil(_PART * self._plan.training.steps)
            rate = variant.learning_rate or _PART * self._plan.training.learning_rate
            fit = functools.partial(self._fit, steps=steps, rate=rate, seed=self._plan.training.seed, taught=True)
            network = fine_tuning.fine_tuned(network, variant, steps, fit)
        module = tf.Module()
        module.weights = network.variables
        signature = self._signature(network)
        tf.saved_model.save(module, str(folder / f"{name}.model"), signatures={"transformed": signature})
        return treated

    def _restored(self) -> tf_keras.Model:
        network = self._training.build()
        warm_start.restore(network, self._request["model"])
        return network

    def _distilled(self, folder: Path) -> tf_keras.Model:
        """The student of the first seed; writes what it and the others predict, taught and alone."""
        config = self._plan.training
        steps, rate = self._variant.steps or config.steps, self._variant.learning_rate or config.learning_rate
        taught: list[tf_keras.Model] = []
        predictions: dict[str, list[npt.NDArray[Any]]] = {"taught": [], "alone": []}
        for seed in range(config.seed, config.seed + SEEDS):
            for name, each in predictions.items():
                tf_keras.utils.set_random_seed(seed)
                network = self._training.build()
                self._fit(network, [], steps=steps, rate=rate, seed=seed, taught=name == "taught")
                each.append(self._predictions(network, folder))
                if name == "taught":
                    taught.append(network)
        arrays = {name: np.stack(each) for name, each in predictions.items()}
        np.savez(folder / f"{self._variant.name}.seeds.npz", **arrays)
        return taught[0]

    def _fit(
        self,
        network: tf_keras.Model,
        callbacks: list[tf_keras.callbacks.Callback],
        steps: int,
        rate: float,
        seed: int,
        taught: bool,
    ) -> None:
        config, head = self._plan.training, self._training.head
        tf_keras.utils.set_random_seed(seed)
        rows = self._training.input_pipeline(config.batch_size).dataset(InputShard())
        # Keras divides by the number of rows.
        rows = rows.map(lambda x, y, *weight: (x, y, *(each / head.mean_weight for each in weight)))
        loss: Loss = head.losses
        if taught and self._variant.student:
            teacher = self._request["teachers"][str(self._variant.teacher)]
            rows, loss = distillation.taught(rows, head, teacher, self._plan.features.task, self._variant)
        # Keras reads the names of a function's arguments.
        network.compile(adam(rate, config.weight_decay), loss=lambda label, logits: loss(label, logits))
        network.fit(rows, steps_per_epoch=steps, verbose=0, callbacks=callbacks)
        if not all(np.isfinite(each).all() for each in network.get_weights()):
            raise NotMadeError(
                f"expected finite weights after {steps} steps, received others",
                f"lower learning_rate of the variant, which is {rate:g}",
            )

    def _signature(self, network: tf_keras.Model) -> tf.types.experimental.GenericFunction:
        return transformed_signature(network, self._training.outputs_by_name(network), self._plan.features)

    def _predictions(self, network: tf_keras.Model, folder: Path) -> npt.NDArray[Any]:
        predict = self._signature(network)
        names = [tensor.name for tensor in network.inputs]
        with np.load(folder / "eval.npz") as rows:
            columns = {name: rows[name] for name in names}
        count = len(columns[names[0]])
        parts = [
            predict({name: tf.constant(values[start : start + _BATCH]) for name, values in columns.items()})
            for start in range(0, count, _BATCH)
        ]
        return np.concatenate([next(iter(part.values())).numpy() for part in parts])


if __name__ == "__main__":
    signal_at_parents_death(signal.SIGKILL, os.getppid())
    logging.basicConfig(level=logging.INFO)
    clone_lambda_layers()
    leave_unconverted("tf_keras")
    main(json.load(sys.stdin))
