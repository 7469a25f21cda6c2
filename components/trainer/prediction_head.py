"""The prediction heads: the number of logits, the loss, the metrics, and the outputs of a served model."""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tensorflow as tf
import tf_keras

from components.base.errors import InputError
from components.features.expression import Label
from components.models import two_tower
from components.results.model_outputs import (
    CUMULATIVE_HAZARD,
    ERROR,
    PREDICTED,
    PREDICTED_FROM,
    SURVIVAL,
    TIMES,
)
from components.trainer.losses import (
    RowLoss,
    binary_crossentropy,
    crossentropy,
    listwise,
    reconstruction_error,
    squared_error,
)


@dataclass(frozen=True, kw_only=True)
class PredictionHead(abc.ABC):
    """The functions from a network's logits to a loss, metrics and outputs. Every task has a subclass.

    Attributes:
      outputs: Number of logits.
      metrics: Metrics of (label, logits), for the evaluation of checkpoints.
      weights: Label [n] → the weight of the label's class in the loss, float32 [n]; if None, all weights are 1.
      mean_weight: Mean of the rows' weights, by which they are divided; 1 if the rows do not have weights.
      scale: (shift, unit) of a regression: the loss compares the logits with (label - shift) / unit; None for classes.
    """

    outputs: int = 1
    metrics: Sequence[tf_keras.metrics.Metric] = ()
    weights: Callable[[tf.Tensor], tf.Tensor] | None = None
    mean_weight: float = 1.0
    scale: tuple[float, float] | None = None

    @abc.abstractmethod
    def loss(self, label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Compute the loss per example, float32 [n], of a label [n], or labels [n, labels], and logits [n, outputs]."""

    @abc.abstractmethod
    def join(self, logits: tf.Tensor) -> tf.Tensor:
        """Compute the logits of an ensemble's mean prediction: [batch, members, outputs] → [batch, outputs]."""

    @abc.abstractmethod
    def outputs_by_name(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Compute the outputs of `serving_default` from logits [batch, outputs]."""

    def losses(self, label: tf.Tensor, logits: tf.Tensor, weight: tf.Tensor | None = None) -> tf.Tensor:
        """Compute the weighted loss per example; for an ensemble, the mean over the losses of its members.

        Args:
          label: One label [batch] or [batch, 1], or [batch, 2] for rows that blend two examples; several labels [batch,
            labels].
          logits: float32, shape [batch, outputs], or [batch, ..., outputs] for the members of an ensemble.
          weight: Weights of the rows, float32 [batch], or [batch, 2] for blended rows; if None, all are equal.

        Returns:
          float32, shape [batch].
        """
        if logits.shape.rank == 2:
            losses = self.loss(label, logits)
        else:
            members = math.prod(logits.shape[1:-1])
            member_losses = self.loss(tf.repeat(label, members, axis=0), tf.reshape(logits, [-1, self.outputs]))
            losses = tf.reduce_mean(tf.reshape(member_losses, [-1, members]), axis=1)
        losses = losses if self.weights is None else losses * self.weights(label)
        return losses if weight is None else losses * (weight / self.mean_weight)

    def weight_of(self, label: tf.Tensor, weight: tf.Tensor | None = None) -> float:
        """Return the sum of the rows' weights in `losses`; without weights, the number of rows."""
        return len(label) if weight is None else float(tf.reduce_sum(weight)) / self.mean_weight

    def mean(self, losses: npt.ArrayLike, weight: float) -> float:
        """Compute the mean of `losses`, given the rows' total weight from `weight_of`.

        Raises:
          InputError: If the weight is 0.
        """
        if not weight:
            raise InputError(
                "data.weight: expected rows with a weight above 0 among those held out of the training, received none",
                "give more rows a weight, or hold more rows out with training.validation",
            )
        return float(np.sum(losses, dtype=np.float64)) / weight

    def join_members(self, logits: tf.Tensor) -> tf.Tensor:
        """Return logits of shape [batch, outputs]; the logits of an ensemble's members are joined."""
        if logits.shape.rank == 2:
            return logits
        return self.join(tf.reshape(logits, [-1, math.prod(logits.shape[1:-1]), self.outputs]))


@dataclass(frozen=True, kw_only=True)
class LabelHead(PredictionHead):
    """The head of one label.

    Attributes:
      row_loss: The loss of the task, or the loss that `model.loss` selects.
    """

    row_loss: RowLoss

    def loss(self, label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Compute the loss per example."""
        return self.row_loss(label, logits)

    def losses(self, label: tf.Tensor, logits: tf.Tensor, weight: tf.Tensor | None = None) -> tf.Tensor:
        """Compute the weighted loss per example; the loss of two blended examples is the sum of both."""
        if label.shape[1:] == (2,):
            pairs = zip(tf.unstack(label, axis=1), tf.unstack(weight, axis=1), strict=True)
            return tf.add_n([self.losses(single, logits, share) for single, share in pairs])
        return super().losses(tf.reshape(label, [-1]), logits, weight)


@dataclass(frozen=True, kw_only=True)
class BinaryHead(LabelHead):
    """A logit for the probability of class 1."""

    row_loss: RowLoss = binary_crossentropy

    def join(self, logits: tf.Tensor) -> tf.Tensor:
        """Compute the logit of the mean probability."""
        return _join_log_odds(logits)

    def outputs_by_name(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the probability of class 1."""
        return {"probability": tf.sigmoid(logits)}


@dataclass(frozen=True, kw_only=True)
class ListHead(BinaryHead):
    """A logit that orders the rows of a list. The rows come in blocks, see `list_blocks`.

    Attributes:
      list_size: Number of consecutive rows that are a list, with padding.
    """

    list_size: int

    def losses(self, label: tf.Tensor, logits: tf.Tensor, weight: tf.Tensor | None = None) -> tf.Tensor:
        """Compute the weighted share of each row, [n], in the loss of its list; their mean is the mean over lists."""
        members = math.prod(logits.shape[1:])
        lists = tf.reshape(label, [-1, self.list_size])
        shares = listwise(lists, tf.reshape(logits, [-1, self.list_size, members]))
        losses = tf.reshape(shares, [-1]) * self.list_size
        return losses if weight is None else losses * (weight / self.mean_weight)

    def weight_of(self, label: tf.Tensor, weight: tf.Tensor | None = None) -> float:
        """Return the number of rows, with padding."""
        return len(label)


@dataclass(frozen=True, kw_only=True)
class MulticlassHead(LabelHead):
    """A logit per class, for the probabilities of `classes`."""

    classes: Sequence[str]
    row_loss: RowLoss = crossentropy

    def join(self, logits: tf.Tensor) -> tf.Tensor:
        """Compute the logarithms of the mean probabilities."""
        return _log_mean_exp(tf.nn.log_softmax(logits))

    def outputs_by_name(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the probabilities, and the names of the classes."""
        names = tf.tile(tf.constant([self.classes]), [tf.shape(logits)[0], 1])
        return {"probabilities": tf.nn.softmax(logits), "classes": names}


@dataclass(frozen=True, kw_only=True)
class MultilabelHead(PredictionHead):
    """A logit per class, for the independent probabilities of `classes`.

    A label has the shape [batch, width], with 0 or 1 for each class, and with 0 in further columns. The loss is the
    mean crossentropy over the classes.
    """

    classes: Sequence[str]

    def loss(self, label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Compute the mean crossentropy over the classes."""
        is_class = tf.cast(label[:, : self.outputs], logits.dtype)
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(is_class, logits), axis=1)

    def join(self, logits: tf.Tensor) -> tf.Tensor:
        """Compute the logits of the mean probabilities."""
        return _join_log_odds(logits)

    def outputs_by_name(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the probabilities, the names of the classes, and 1 for each class that is predicted."""
        names = tf.tile(tf.constant([self.classes]), [tf.shape(logits)[0], 1])
        probabilities = tf.sigmoid(logits)
        is_predicted = tf.cast(probabilities >= PREDICTED_FROM, tf.int64)
        return {"probabilities": probabilities, "classes": names, PREDICTED: is_predicted}


@dataclass(frozen=True, kw_only=True)
class RegressionHead(LabelHead):
    """A logit for a number in units of the label's deviation from its mean."""

    scale: tuple[float, float]
    row_loss: RowLoss = squared_error

    def loss(self, label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Compute the loss of the scaled label."""
        shift, unit = self.scale
        return super().loss((label - shift) / unit, logits)

    def join(self, logits: tf.Tensor) -> tf.Tensor:
        """Compute the mean."""
        return tf.reduce_mean(logits, axis=1)

    def outputs_by_name(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the number."""
        shift, unit = self.scale
        return {"prediction": logits * unit + shift}


@dataclass(frozen=True, kw_only=True)
class SurvivalHead(PredictionHead):
    """A logit per interval of time for the logarithm of hazard / hazard of all rows, which is constant in an interval.

    A label has the shape [batch, 2]: the time of the event or of the last observation, and 1 for an event. The loss is
    the negative log-likelihood. A new network, whose logits are near 0, predicts the survival of all rows.

    Source: M. Friedman, Piecewise exponential models for survival data with covariates, Annals of Statistics 10, 1982;
    with a network, H. Kvamme and Ø. Borgan, Continuous and discrete-time survival prediction with neural networks,
    Lifetime Data Analysis 27, 2021.

    Attributes:
      ends: Ends of the intervals, ascending; [outputs]. The last interval continues beyond its end.
      hazards: Hazard of all training rows per interval; [outputs].
    """

    ends: Sequence[float]
    hazards: Sequence[float]

    def loss(self, label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Compute the negative log-likelihood."""
        time, happened = tf.cast(label[:, :1], logits.dtype), tf.cast(label[:, 1], logits.dtype)
        starts, ends = self._starts, tf.constant([*self.ends[:-1], math.inf], logits.dtype)
        logarithms = self._log_hazards(logits)
        exposures = tf.maximum(tf.minimum(time, ends), starts) - starts
        is_interval = tf.cast((time <= ends) & ((time > starts) | (starts == 0)), logits.dtype)
        return tf.reduce_sum(tf.exp(logarithms) * exposures, axis=1) - happened * tf.reduce_sum(
            logarithms * is_interval, axis=1
        )

    def join(self, logits: tf.Tensor) -> tf.Tensor:
        """Compute the logits of the mean survival: [batch, members, outputs] → [batch, outputs]."""
        cumulative = -_log_mean_exp(-self._cumulate(logits))
        steps = tf.concat([cumulative[:, :1], cumulative[:, 1:] - cumulative[:, :-1]], axis=1)
        # Rounding must not make a hazard negative.
        return tf.math.log(tf.maximum(steps / self._widths, _LEAST_HAZARD)) - np.log(np.float32(self.hazards))

    def outputs_by_name(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the expected time within the intervals, and the survival at their ends."""
        cumulative = self._cumulate(logits)
        survival = tf.exp(-cumulative)
        before = tf.concat([tf.ones_like(survival[:, :1]), survival[:, :-1]], axis=1)
        # The integral of the survival over an interval is (survival before - survival after) / hazard.
        steps = tf.exp(self._log_hazards(logits)) * self._widths
        means = before * tf.where(steps > 0, -tf.math.expm1(-steps) / tf.maximum(steps, _LEAST_HAZARD), 1.0)
        return {
            "prediction": tf.reduce_sum(means * self._widths, axis=1, keepdims=True),
            SURVIVAL: survival,
            CUMULATIVE_HAZARD: cumulative,
            TIMES: tf.tile(tf.constant([self.ends], tf.float32), [tf.shape(logits)[0], 1]),
        }

    @property
    def _starts(self) -> npt.NDArray[np.float32]:
        return np.array([0.0, *self.ends[:-1]], np.float32)

    @property
    def _widths(self) -> npt.NDArray[np.float32]:
        return np.diff(np.array(self.ends), prepend=0.0).astype(np.float32)

    def _log_hazards(self, logits: tf.Tensor) -> tf.Tensor:
        return logits + np.log(np.array(self.hazards)).astype(np.float32)

    def _cumulate(self, logits: tf.Tensor) -> tf.Tensor:
        """Return the cumulative hazards at the ends of the intervals, of the shape of the logits."""
        return tf.cumsum(tf.exp(self._log_hazards(logits)) * self._widths, axis=-1)


@dataclass(frozen=True, kw_only=True)
class QuantileHead(RegressionHead):
    """A logit per quantile. The prediction is the quantile that is nearest to the median."""

    quantiles: Sequence[float]

    def outputs_by_name(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the prediction and all quantiles in ascending order."""
        nearest = int(np.argmin(np.abs(np.array(self.quantiles) - 0.5)))
        # Sorting moves estimated quantiles closer to the true quantiles (Chernozhukov, Fernández-Val and Galichon,
        # Quantile and probability curves without crossing, Econometrica 78, 2010).
        values = super().outputs_by_name(tf.sort(logits, axis=1))["prediction"]
        return {"prediction": values[:, nearest : nearest + 1], "quantiles": values}


@dataclass(frozen=True, kw_only=True)
class DevianceHead(RegressionHead):
    """A logit for the logarithm of label / mean. A new network, whose logits are near 0, predicts the mean."""

    def join(self, logits: tf.Tensor) -> tf.Tensor:
        """Compute the logarithm of the mean."""
        return _log_mean_exp(logits)

    def outputs_by_name(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the number."""
        return super().outputs_by_name(tf.exp(logits))


@dataclass(frozen=True, kw_only=True)
class RetrievalHead(LabelHead):
    """The vectors of two towers, which the index of all items turns into predictions."""

    def join(self, logits: tf.Tensor) -> tf.Tensor:
        """Return the only member: vectors of several networks cannot be compared."""
        return logits[:, 0]

    def outputs_by_name(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the vectors."""
        return two_tower.vectors(logits)._asdict()


@dataclass(frozen=True, kw_only=True)
class AnomalyHead(LabelHead):
    """A logit that is the reconstruction error of the row, which is also the loss. The label is ignored.

    Attributes:
      contamination: Share of the rows that are anomalies.
    """

    contamination: float
    row_loss: RowLoss = reconstruction_error

    def join(self, logits: tf.Tensor) -> tf.Tensor:
        """Compute the mean."""
        return tf.reduce_mean(logits, axis=1)

    def outputs_by_name(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the error."""
        return {ERROR: logits}


@dataclass(frozen=True, kw_only=True)
class CompositeHead(PredictionHead):
    """The heads of several labels, whose logits are next to each other. The loss is the weighted sum of their losses.

    Attributes:
      parts: Label → its head, in the order of the logits.
      label_weights: Weights of the labels' losses.
    """

    parts: Mapping[Label, PredictionHead]
    label_weights: Sequence[float]

    @property
    def columns(self) -> list[slice]:
        """The columns of the labels' logits."""
        ends = itertools.accumulate((part.outputs for part in self.parts.values()), initial=0)
        return [slice(start, end) for start, end in itertools.pairwise(ends)]

    def loss(self, label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Compute the weighted sum of the labels' losses."""
        parts = zip(self.label_weights, self.parts.values(), tf.unstack(label, axis=1), self.columns, strict=True)
        return tf.add_n([weight * part.loss(values, logits[:, columns]) for weight, part, values, columns in parts])

    def join(self, logits: tf.Tensor) -> tf.Tensor:
        """Compute the logits of every label's mean prediction."""
        parts = zip(self.parts.values(), self.columns, strict=True)
        return tf.concat([part.join(logits[:, :, columns]) for part, columns in parts], axis=1)

    def outputs_by_name(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs of all labels. Their names end with the label."""
        return {
            label.add_name(name): output
            for (label, part), columns in zip(self.parts.items(), self.columns, strict=True)
            for name, output in part.outputs_by_name(logits[:, columns]).items()
        }


@dataclass(frozen=True, kw_only=True)
class ChainHead(CompositeHead):
    """The heads of esmm, whose logits are the probabilities of a label and all previous labels.

    Attributes:
      is_conditional: Whether the loss is the likelihood of all labels, each conditional on the previous label.
    """

    is_conditional: bool

    def loss(self, label: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        """Compute the negative log-likelihood of the chain, in which a later label implies all earlier labels."""
        if not self.is_conditional:
            return super().loss(label, logits)
        from_last = reversed(tf.unstack(tf.cast(label, logits.dtype), axis=1))
        present = [*itertools.accumulate(from_last, tf.maximum)][::-1]
        logarithms = tf.unstack(tf.math.log_sigmoid(logits), axis=1)
        losses = self.label_weights[0] * binary_crossentropy(present[0], logits)
        for number, (before, conditional) in enumerate(itertools.pairwise(logarithms), 1):
            # Probabilities decrease along a chain; the bound keeps rounding errors from making a share positive.
            share = tf.minimum(conditional - before, -_LEAST_SHARE)
            likelihood = present[number] * share + (1 - present[number]) * tf.math.log(-tf.math.expm1(share))
            losses -= self.label_weights[number] * present[number - 1] * likelihood
        return losses

    def outputs_by_name(self, logits: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the outputs of all labels, and the probability of each label given the previous label."""
        logarithms = tf.math.log_sigmoid(logits)
        # The labels are calibrated independently, so a label may become slightly more probable than the previous label.
        shares = tf.exp(tf.minimum(logarithms[:, 1:] - logarithms[:, :-1], 0.0))
        return super().outputs_by_name(logits) | {
            f"probability_{label.name}_given_{before.name}": shares[:, number : number + 1]
            for number, (before, label) in enumerate(itertools.pairwise(self.parts))
        }


_LEAST_SHARE = 1e-6
_LEAST_HAZARD = 1e-30
"""Smallest hazard whose logarithm is computed."""


def _join_log_odds(logits: tf.Tensor) -> tf.Tensor:
    """Return the logits of mean probabilities: [batch, members, outputs] → [batch, outputs]."""
    return tf.reduce_logsumexp(tf.math.log_sigmoid(logits), axis=1) - tf.reduce_logsumexp(
        tf.math.log_sigmoid(-logits), axis=1
    )


def _log_mean_exp(logits: tf.Tensor) -> tf.Tensor:
    """Return the logarithm of the mean of exp(logits): [batch, members, outputs] → [batch, outputs]."""
    members = tf.cast(tf.shape(logits)[1], logits.dtype)
    return tf.reduce_logsumexp(logits, axis=1) - tf.math.log(members)
