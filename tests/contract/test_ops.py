"""Every feature operation under one contract: one graph in training and serving, stated dtypes and ranges."""

from __future__ import annotations

import collections
import functools
import itertools
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from sklearn.feature_extraction.text import TfidfVectorizer

from components.base.errors import InputError
from components.features import feature_names, graph_files, ops, weighted_ids
from components.features.base_op import Op
from components.features.column import column
from components.features.compact import CompactFeatures
from components.features.config import OPS, Cross, Feature, FeaturesConfig, Hash, Hashed
from components.features.date_ops import DatePart
from components.features.encoding_ops import TargetMean
from components.features.feature_spec import Dense, Ids
from components.features.hash_collisions import HashCollisions
from components.features.host import EXPORTED_OPS
from components.features.host import export as export_of_edge
from components.features.host.preprocessing import Preprocessing
from components.features.operation import OPERATIONS, find_operation
from components.features.plan import FeaturePlan
from components.features.sequence_ops import EventSequence, TimeGaps
from components.features.text_ops import MultiHot, Split, Text
from components.models.build import build
from components.models.config import ModelConfig
from components.models.inputs import inputs
from components.trainer.export import export
from tests.support.data.all_operations import (
    NO_DATES,
    NOTHING,
    OPTIONS,
    SCHEMA,
    SPEC,
    VECTORS,
    example,
    plan,
    rows,
    table,
    values,
)
from tests.support.data.example_files import stored
from tests.support.data.tolerances import float32_sum, float64_sum
from tests.support.runs.transform_runs import transform


@pytest.fixture(scope="module")
def transform_result(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], list[Any], Any]:
    """Return training rows, their features as Transform computes them, and the graph that serving loads.

    unit/components/transform/test_transform_executor.py checks that TFX's Transform gives the same features.
    """
    folder = tmp_path_factory.mktemp("ops")
    tables = {"train": table(TRAIN_ROWS, TRAIN_SEED), "eval": table(1, 6)}
    written = transform(stored(folder / "in", "parquet", tables), SCHEMA, folder / "out", plan())
    columns = written.rows("train")
    # Transformed rows hold an image as a file, and a binned value as two numbers.
    stored_names = (*COMPACT.images, *COMPACT.bins)
    expanded = decode({name: tf.constant(columns[name]) for name in stored_names})
    columns |= {name: values.numpy() for name, values in expanded.items()}
    trained = [{name: column[at] for name, column in columns.items()} for at in range(TRAIN_ROWS)]
    return rows(TRAIN_ROWS, TRAIN_SEED), trained, written.output


TRAIN_ROWS, TRAIN_SEED = 200, 1


@functools.cache
def serve_training_rows(transform: tft.TFTransformOutput) -> dict[str, np.ndarray]:
    """Return the features of the training rows."""
    return serve(transform, rows(TRAIN_ROWS, TRAIN_SEED))


@functools.cache
def serve_random_rows(transform: tft.TFTransformOutput, seed: int) -> dict[str, np.ndarray]:
    """Return the features of 100 rows and of a row without any values."""
    return serve(transform, [*rows(100, seed), NOTHING])


def serve(transform: tft.TFTransformOutput, raw_rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Return the features of rows as a served model computes them: from serialized tf.Examples."""
    parsed = tf.io.parse_example([example(row) for row in raw_rows], SPEC)
    return {name: value.numpy() for name, value in decode(transform.transform_features_layer()(parsed)).items()}


COMPACT = CompactFeatures.find(plan().features)
decode = tf.function(COMPACT.expand, autograph=False)


def words(row: dict[str, Any], feature: Feature) -> list[Any]:
    """Return the words, in order, that an operation reads from all values of an example."""
    row_values = values(row[feature.columns[0]])
    if isinstance(feature.op, Text):
        texts = [value.decode(errors="replace").lower() for value in row_values]
        return [word for text in texts for word in re.findall(r"[^\W_]+", text)]
    if SPEC[feature.columns[0]].dtype == tf.string:
        return [part.strip() for value in row_values for part in value.split(b"|") if part.strip()]
    return [str(value).encode() for value in row_values]


def is_known(row: dict[str, Any], feature: Feature) -> bool:
    """Return whether a row has the values that the feature needs."""
    if isinstance(feature.op, (Text, Split, MultiHot, EventSequence)):
        return bool(words(row, feature))
    if isinstance(feature.op, TimeGaps):
        return any(word.lstrip(b"-").isdigit() for word in words(row, feature))
    if isinstance(feature.op, DatePart) and feature.columns[0] in NO_DATES:
        return False
    return all(row[column] is not None for column in feature.columns)


FEATURES = plan().features.declared
by_feature = pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.name)


def plan_without_tensorflow() -> FeaturePlan:
    """Return the part of the plan that hosts without TensorFlow can compute."""
    every = plan()
    columns = {
        name: tuple(
            op for op in ops_of if op.op in EXPORTED_OPS and not (isinstance(op, Hashed) and op.min_frequency > 1)
        )
        for name, ops_of in every.features.columns.items()
    }
    features = FeaturesConfig(
        columns={name: ops_of for name, ops_of in columns.items() if ops_of}, crosses=every.features.crosses
    )
    return every.model_copy(update={"features": features})


@pytest.mark.slow
def test_exported_preprocessing_equals_the_graph(transform_result: tuple[Any, Any, Any], tmp_path: Path) -> None:
    exported = plan_without_tensorflow()
    assert {feature.op.op for feature in exported.features.declared} == set(EXPORTED_OPS)
    file = tmp_path / "preprocessing.json"
    file.write_text(export_of_edge.preprocessing(exported, transform_result[2]), encoding="utf-8")
    raw_rows = [*rows(1000, seed=5), NOTHING]
    expected = serve(transform_result[2], raw_rows)
    expected = {feature.name: expected[feature.name] for feature in exported.features.declared}
    batch = table(1000, 5, NOTHING)
    reference = Preprocessing(file)
    assert export_of_edge.difference(reference, batch, expected) is None
    # Prove that the comparison compares: it finds an inserted difference.
    name = exported.features.declared[0].name
    wrong = {**expected, name: expected[name] + 1}
    assert f"preprocessing: {name}, row 0" in str(export_of_edge.difference(reference, batch, wrong))


def test_every_registered_operation_is_tested_here() -> None:
    assert all(find_operation(feature.op) for feature in FEATURES)
    assert {type(feature.op) for feature in FEATURES} == set(OPERATIONS)
    assert {type(each) for op in OPS.values() for each in build_op(op).expand()} | {Cross} == set(OPERATIONS)


def build_op(kind: type[Op]) -> Op:
    name = kind.model_fields["op"].default
    return FeaturesConfig.model_validate({"columns": {"x": {name: OPTIONS[name]}}}).columns["x"][0]


def test_training_and_serving_compute_the_same(transform_result: Any) -> None:
    raw_rows, trained, transform = transform_result
    at_once = serve_training_rows(transform)
    order = np.argsort([row["row_z_score"] for row in trained])
    assert len(order) == len(raw_rows)
    means = {feature.name for feature in FEATURES if isinstance(feature.op, TargetMean)}
    assert means <= at_once.keys()
    for name, features in at_once.items():
        # A training row gets the mean over other rows; tests/unit/components/transform/test_encodings.py compares it.
        if name in means:
            continue
        np.testing.assert_allclose(
            np.stack([trained[index][name] for index in order]), features, rtol=1e-5, atol=1e-6, err_msg=name
        )


@by_feature
def test_feature_matches_its_output_spec(transform_result: Any, feature: Feature) -> None:
    _, _, transform = transform_result
    fresh = [*rows(100, seed=2), NOTHING]
    outputs = serve_random_rows(transform, 2)[feature.name]
    spec = inputs(plan(), transform.vocabulary_size_by_name).features[feature.name]
    present = np.array([is_known(row, feature) for row in fresh])
    assert np.isfinite(outputs).all()
    if isinstance(spec, Ids):
        assert outputs.dtype == np.int64
        if spec.is_weighted:
            outputs, weights = (tensor.numpy() for tensor in weighted_ids.unpack(tf.constant(outputs)))
            float32_sum(8).assert_close((weights**2).sum(axis=1), present)
        assert outputs.shape == ((101,) if spec.values == 1 else (101, spec.values))
        assert outputs.min() >= 0
        assert outputs.max() < spec.cardinality
        row_vectors = outputs.reshape(101, -1)
        assert (row_vectors[~present] == 0).all(), "a missing value has id 0"
        assert (row_vectors[present, 0] != 0).all(), "and no other value has"
        assert (np.diff((row_vectors == 0).astype(int)) >= 0).all(), "what is none stands last"
        assert spec.width == feature.op.embedding
    else:
        assert isinstance(spec, Dense)
        assert outputs.dtype == np.float32
        assert outputs.shape == ((101,) if spec.width == 1 else (101, spec.width))
        # A missing value has a mean as other values have.
        if feature.name != "row_z_score" and not isinstance(feature.op, TargetMean):
            assert (outputs[~present] == (feature.op.op == "missing")).all(), "a missing number is 0, an image black"


@pytest.mark.parametrize(
    "feature",
    [feature for feature in FEATURES if any(name.startswith("never_") for name in feature.columns)],
    ids=lambda feature: feature.name,
)
def test_column_that_is_always_missing_gives_a_constant(transform_result: Any, feature: Feature) -> None:
    _, trained, _ = transform_result
    outputs = np.stack([row[feature.name] for row in trained])
    assert (outputs == (feature.op.op == "missing")).all()


@pytest.mark.parametrize(
    "feature",
    [
        feature
        for feature in FEATURES
        if isinstance(feature.op, (Split, MultiHot)) and not feature.columns[0].startswith("never_")
    ],
    ids=lambda feature: feature.name,
)
def test_all_values_of_an_example_are_read(transform_result: Any, feature: Feature) -> None:
    raw_rows, _, transform = transform_result
    outputs = serve_training_rows(transform)[feature.name]
    vocabulary = transform.vocabulary_by_name(feature.name)
    assert len(vocabulary) == feature.op.size
    for row, answer in zip(raw_rows, outputs, strict=True):
        read = words(row, feature)
        if isinstance(feature.op, MultiHot):
            hot = [float(entry in read) for entry in vocabulary]
            assert answer[: len(vocabulary)].tolist() == hot
            unknown = set(read) - set(vocabulary)
            assert answer.max(initial=0) <= 1
            assert bool(unknown) == bool(answer[len(vocabulary) :].any())
        else:
            ids = [vocabulary.index(word) + 1 if word in vocabulary else None for word in read[:3]]
            assert [id_ if want else None for id_, want in zip(answer, ids, strict=False)] == ids
            assert (answer[: len(read)] > 0).all()
            assert (answer[len(read) :] == 0).all()


def test_latest_events_have_the_ids_of_the_column_that_they_repeat(transform_result: Any) -> None:
    _, _, transform = transform_result
    raw_rows = [{**NOTHING, "users": [7, *range(10, 16)]}, *({**NOTHING, "user": user} for user in range(12, 16))]
    outputs = serve(transform, raw_rows)
    assert outputs["users_sequence"][0].tolist() == outputs["user_hash"][1:].tolist()
    vocabulary = [int(entry) for entry in transform.vocabulary_by_name("count_vocab")]
    outputs = serve(transform, [{**NOTHING, "counts": [99, vocabulary[2], vocabulary[0]]}, {**NOTHING, "count": 99}])
    assert outputs["counts_sequence"][0].tolist() == [outputs["count_vocab"][1], 3, 1, 0]


def test_vocabulary_is_counted_in_the_column_and_in_its_history(transform_result: Any) -> None:
    raw_rows, _, transform = transform_result
    latest = [value for row in raw_rows for value in values(row["counts"])[-4:]]
    counts = collections.Counter(map(str, [*latest, *(row["count"] for row in raw_rows if row["count"] is not None)]))
    order = sorted(counts, key=lambda text: (-counts[text], text))
    assert [entry.decode() for entry in transform.vocabulary_by_name("count_vocab")] == order[:3]


def test_rare_buckets_of_a_hash_share_an_id(transform_result: Any) -> None:
    raw_rows, _, transform = transform_result
    latest = [user for row in raw_rows for user in values(row["users"])[-4:]]
    users = [*latest, *(row["user"] for row in raw_rows if row["user"] is not None)]
    buckets = tf.strings.to_hash_bucket_fast([*map(str, users), *map(str, range(50))], 20).numpy().tolist()
    counts, bucket_of = collections.Counter(buckets[:-50]), buckets[-50:]
    frequent = sorted(
        (bucket for bucket in counts if counts[bucket] >= 20), key=lambda bucket: (-counts[bucket], str(bucket))
    )
    assert 1 < len(frequent) < len(counts)
    assert [int(entry) for entry in transform.vocabulary_by_name("user_hash")] == frequent
    outputs = serve(transform, [{**NOTHING, "user": user} for user in range(50)])["user_hash"].tolist()
    ranks = {bucket: rank for rank, bucket in enumerate(frequent, 1)}
    assert outputs == [ranks.get(bucket, len(frequent) + 1) for bucket in bucket_of]


def test_collisions_of_hashed_values_are_counted(transform_result: Any) -> None:
    raw_rows, _, transform = transform_result
    latest = [user for row in raw_rows for user in values(row["users"])[-4:]]
    users = collections.Counter([*latest, *(row["user"] for row in raw_rows if row["user"] is not None)])
    buckets = dict(zip(users, tf.strings.to_hash_bucket_fast([*map(str, users)], 20).numpy().tolist(), strict=True))
    sizes = collections.Counter(buckets.values())
    shared = [user for user in users if sizes[buckets[user]] > 1]
    collisions = {
        collision.feature: collision for collision in graph_files.hash_collisions(transform._transform_output_dir)
    }
    assert collisions["user_hash"] == HashCollisions(
        *("user_hash", 20, len(users), len(sizes)),
        float64_sum(1).approx(len(shared) / len(users)),
        float64_sum(1).approx(sum(users[user] for user in shared) / users.total()),
        sampled=1,
    )
    hashing = (Hash, Cross, Text, EventSequence)
    hashed = [
        feature for feature in FEATURES if isinstance(feature.op, hashing) and getattr(feature.op, "buckets", None)
    ]
    assert collisions.keys() == {
        feature.name for feature in hashed if not feature.shares and getattr(feature.op, "vocabulary", None) is None
    }


def test_time_gaps_are_logarithms_of_seconds(transform_result: Any) -> None:
    _, _, transform = transform_result
    now = 1_700_000_000_000
    ago = [0, 999, 1000, 3000, 60_000, 10**15]
    raw_rows = [
        {**NOTHING, "user_times": [now - age for age in pair], "stamp": now} for pair in itertools.pairwise(ago)
    ]
    raw_rows += [
        {**NOTHING, "user_times": [now, now + 5000], "stamp": now},
        {**NOTHING, "user_times": [now - 7000, now]},
    ]
    outputs = serve(transform, raw_rows)["user_times_time_gaps"][:, :2].tolist()
    # The last row can only be compared with the time of its last event.
    assert outputs == [[1, 1], [1, 2], [2, 3], [3, 6], [6, 32], [1, 1], [4, 1]]
    assert serve(transform, [{**NOTHING, "pair_of_times": [100, 103]}])["pair_of_times_time_gaps"].tolist() == [
        [3, 1, 0, 0]
    ]


def test_words_and_ngrams_have_ids(transform_result: Any) -> None:
    _, _, transform = transform_result
    vocabulary = {entry.decode() for entry in transform.vocabulary_by_name("note_text")}
    assert {"red", "red shoes", "red shoes red", "größe 42 été", "caf"} <= vocabulary
    outputs = serve(transform, [{**NOTHING, "note": "Shoes; ¡RED?".encode()}])["note_text"][0]
    names_of = [entry.decode() for entry in transform.vocabulary_by_name("note_text")]
    # `shoes red` is known from `Red Shoes, red!`.
    assert [names_of[id_ - 1] for id_ in outputs[:3]] == ["shoes", "red", "shoes red"]
    assert not outputs[3:].any()


def test_words_have_the_weights_of_scikit_learn(transform_result: Any) -> None:
    raw_rows, _, transform = transform_result
    lines = [line.decode().split("\t") for line in transform.vocabulary_by_name("review_text")]
    training = [words_and_pairs(row["review"]) for row in raw_rows]
    training = [row for row in training if row]
    vectorizer = TfidfVectorizer(analyzer=lambda row: row, vocabulary=[word for word, _ in lines]).fit(training)
    notes = [b"red red shoes", b"Shoes and a hat; 42", "été".encode(), b"unknown"]
    packed = serve(transform, [{**NOTHING, "review": note} for note in notes])["review_text"]
    ids, weights = weighted_ids.unpack(tf.constant(packed))
    computed = np.zeros((len(notes), len(lines) + 1), np.float32)
    np.put_along_axis(computed, ids.numpy(), weights.numpy(), axis=1)
    expected = vectorizer.transform([words_and_pairs(note) for note in notes]).toarray()
    float32_sum(8).assert_close(computed[:, 1:], expected)


def test_values_and_words_have_the_vectors_of_the_file(transform_result: Any) -> None:
    _, _, transform = transform_result
    lines = [line.split(" ") for line in VECTORS.read_text(encoding="utf-8").splitlines()[:-1]]
    vectors = {value: np.array(numbers, np.float32) for value, *numbers in lines}
    outputs = serve(
        transform,
        [
            {**NOTHING, "shop": "é".encode(), "count": -3, "comment": [b"Red shoes", b"blue"]},
            {**NOTHING, "shop": b"b", "count": 8, "comment": b"..."},
        ],
    )
    np.testing.assert_array_equal(outputs["shop_vectors"], [vectors["é"], np.zeros(3)])
    np.testing.assert_array_equal(outputs["count_vectors"], [vectors["-3"], np.zeros(3)])
    np.testing.assert_array_equal(outputs["comment_vectors"], [(vectors["red"] + vectors["shoes"]) / 2, np.zeros(3)])


def words_and_pairs(text: bytes | None) -> list[str]:
    separate = re.findall(r"[^\W_]+", (text or b"").decode(errors="replace").lower())
    return [*separate, *map(" ".join, itertools.pairwise(separate))]


def test_parts_of_dates_equal_pythons(transform_result: Any) -> None:
    raw_rows, _, transform = transform_result
    outputs = serve_training_rows(transform)
    for index, row in enumerate(raw_rows):
        if row["when"] is not None:
            when = datetime.fromisoformat(row["when"].decode())
            assert outputs["when_month"][index] == when.month
            assert outputs["when_day"][index] == when.day
            assert outputs["when_weekday"][index] == when.weekday() + 1
            assert outputs["when_hour"][index] == when.hour + 1
            assert outputs["when_minute"][index] == when.minute + 1
            assert outputs["when_day_of_year"][index] == when.timetuple().tm_yday
            for part, angle in (("month", (when.month - 1) / 12), ("hour", when.hour / 24)):
                circle = np.sin(2 * np.pi * angle), np.cos(2 * np.pi * angle)
                float32_sum(1).assert_close(outputs[f"when_{part}_cyclical"][index], circle)
        if row["stamp"] is not None:
            stamp = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=row["stamp"])
            assert outputs["stamp_hour"][index] == stamp.hour + 1


def test_cross_distinguishes_all_combinations(transform_result: Any) -> None:
    _, _, transform = transform_result
    pairs = [(text, seat) for text in (b"l", b"l1", b"l:1", b"1") for seat in (1, 11, -1)]
    raw_rows = [{**NOTHING, "left": text, "seats": seat} for text, seat in pairs]
    assert len(set(serve(transform, raw_rows)["apart_cross"].tolist())) == len(pairs)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ["int", "float", "bytes"])
def test_unsupported_dtype_is_an_error(op: str, dtype: str) -> None:
    for feature in FeaturesConfig.model_validate({"columns": {"x": {op: OPTIONS[op]}}}).declared:
        if dtype not in feature.op.takes:
            columns = {name: column(name, TENSORS[dtype]) for name in feature.columns}
            with pytest.raises(InputError, match=rf"features.columns.x: \w+ takes .*, and .* x holds {dtype}"):
                ops.read(feature, columns)


TENSORS = {"int": tf.constant([1], tf.int64), "float": tf.constant([1.0]), "bytes": tf.constant([b"a"])}


def test_cross_of_floats_is_an_error() -> None:
    (feature,) = FeaturesConfig.model_validate({"crosses": {"z": {"columns": ["a", "b"], "buckets": 5}}}).declared
    tensors = {"a": column("a", TENSORS["bytes"]), "b": column("b", TENSORS["float"])}
    with pytest.raises(InputError, match=r"features.crosses.z: cross takes bytes or int, and the column b holds float"):
        ops.read(feature, tensors)


@pytest.mark.slow
def test_model_of_all_operations_is_exported_with_both_signatures(transform_result: Any, tmp_path: Path) -> None:
    _, _, transform = transform_result
    network = build(ModelConfig(hidden=(8,)), inputs(plan(), transform.vocabulary_size_by_name), 1)
    # It compares the answers of a new process, by both signatures, with the network.
    export(network, lambda logits: {"probability": logits}, plan(), transform, str(tmp_path / "model"))


def test_label_is_false_where_a_value_is_missing(transform_result: Any) -> None:
    raw_rows, _, transform = transform_result
    label = serve_training_rows(transform)[feature_names.LABEL]
    want = [
        row["price"] is not None and row["count"] is not None and row["price"] > 10 and row["count"] > 1
        for row in raw_rows
    ]
    assert label.tolist() == [int(answer) for answer in want]
    assert label.dtype == np.int64
