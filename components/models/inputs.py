"""The inputs of a model: its transformed features, from the feature plan and the transform graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from components.features import feature_names, ops
from components.features.feature_spec import Dense, Ids, VocabularySize
from components.features.plan import FeaturePlan


@dataclass(frozen=True)
class Inputs:
    """The transformed features, in the order of the config.

    Attributes:
      features: Feature name → spec, numbers or IDs.
      columns: Feature name → raw columns that the feature is computed from.
    """

    features: dict[str, Dense | Ids]
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def dense(self) -> dict[str, Dense]:
        """The features of float32 numbers."""
        return {name: feature for name, feature in self.features.items() if isinstance(feature, Dense)}

    @property
    def ids(self) -> dict[str, Ids]:
        """The features of int64 ids."""
        return {name: feature for name, feature in self.features.items() if isinstance(feature, Ids)}

    def list_columns(self, name: str) -> tuple[str, ...]:
        """Return the raw columns of a feature; without such columns, the name of the feature itself."""
        return self.columns.get(name, (name,))


def inputs(plan: FeaturePlan, vocabulary_size: VocabularySize) -> Inputs:
    """Return the inputs of a model for a plan.

    Args:
      plan: Plan with the declared features.
      vocabulary_size: Function from the name of a vocabulary to its number of entries.
    """
    declared = plan.features.declared
    classes = vocabulary_size(feature_names.LABEL_CLASSES) if plan.task == "multiclass" else 1
    return Inputs(
        {feature.name: ops.output_spec(feature, vocabulary_size, classes) for feature in declared},
        {feature.name: feature.columns for feature in declared},
    )
