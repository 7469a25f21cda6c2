"""Models of other libraries: functions of users that train them, and their conversion to TensorFlow."""
