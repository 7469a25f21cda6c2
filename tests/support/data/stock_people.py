"""A `module_file` for stock TFX, after the template of its taxi example; it does not use this project's code."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
import tensorflow_transform as tft
import tf_keras
from tfx_bsl.public import tfxio

from tests.support.data.stock_people_keys import LABEL, NUMBER, transformed_name


def preprocessing_fn(inputs: dict[str, Any]) -> dict[str, Any]:
    """Compute one feature and the label."""
    number = tf.sparse.to_dense(inputs[NUMBER])[:, 0]
    label = tf.sparse.to_dense(inputs[LABEL])[:, 0]
    return {
        transformed_name(NUMBER): tft.scale_to_z_score(number),
        transformed_name(LABEL): tf.cast(tf.equal(label, ">50K"), tf.int64),
    }


def run_fn(fn_args: Any) -> None:
    """Train on the examples of the data accessor, and export the model."""
    transform = tft.TFTransformOutput(fn_args.transform_output)
    options = tfxio.TensorFlowDatasetOptions(batch_size=50, label_key=transformed_name(LABEL))
    examples = fn_args.data_accessor.tf_dataset_factory(
        fn_args.train_files, options, transform.transformed_metadata.schema
    )
    number = tf_keras.Input((1,), name=transformed_name(NUMBER))
    model = tf_keras.Model({transformed_name(NUMBER): number}, tf_keras.layers.Dense(1, activation="sigmoid")(number))
    model.compile(tf_keras.optimizers.Adam(0.1), "binary_crossentropy")
    model.fit(examples.repeat(), steps_per_epoch=fn_args.train_steps, verbose=2)
    model.transform = transform.transform_features_layer()
    spec = transform.raw_feature_spec()

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def transform_features(examples: Any) -> dict[str, Any]:
        return dict(model.transform(tf.io.parse_example(examples, spec)))

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def serve(examples: Any) -> dict[str, Any]:
        features = model.transform(tf.io.parse_example(examples, {NUMBER: spec[NUMBER]}))
        return {"probability": model({transformed_name(NUMBER): features[transformed_name(NUMBER)][:, None]})}

    signatures = {"serving_default": serve, "transform_features": transform_features}
    model.save(fn_args.serving_model_dir, save_format="tf", signatures=signatures)
