// TensorFlow's wheel lacks the headers of TensorFlow Lite, so --prefer_tflite_model is answered with an error.
#pragma once

#include <memory>
#include <string>

#include "tensorflow/core/platform/errors.h"
#include "tensorflow_serving/servables/tensorflow/serving_session.h"

namespace tensorflow {
namespace serving {

struct TfLiteSession : ServingSession {
  template <typename... Arguments>
  static absl::Status Create(std::string, const SessionOptions&, int, int, std::unique_ptr<TfLiteSession>*,
                             Arguments&&...) {
    return errors::Unimplemented("this model server was built without TensorFlow Lite");
  }
};

}  // namespace serving
}  // namespace tensorflow
