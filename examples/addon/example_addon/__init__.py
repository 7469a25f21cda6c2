"""An add-on with one entry of each kind. Modules that the config imports do not import TensorFlow or TFX."""
