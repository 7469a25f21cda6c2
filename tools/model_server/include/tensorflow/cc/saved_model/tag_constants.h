// Tags of the SavedModel format. TensorFlow's wheel lacks this header.
#pragma once

namespace tensorflow {

constexpr char kSavedModelTagServe[] = "serve";

}  // namespace tensorflow
