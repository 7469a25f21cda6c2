// Method and tensor names of the SavedModel format. TensorFlow's wheel lacks this header.
#pragma once

namespace tensorflow {

constexpr char kDefaultServingSignatureDefKey[] = "serving_default";
constexpr char kClassifyMethodName[] = "tensorflow/serving/classify";
constexpr char kClassifyInputs[] = "inputs";
constexpr char kClassifyOutputClasses[] = "classes";
constexpr char kClassifyOutputScores[] = "scores";
constexpr char kPredictMethodName[] = "tensorflow/serving/predict";
constexpr char kPredictInputs[] = "inputs";
constexpr char kPredictOutputs[] = "outputs";
constexpr char kRegressMethodName[] = "tensorflow/serving/regress";
constexpr char kRegressInputs[] = "inputs";
constexpr char kRegressOutputs[] = "outputs";

}  // namespace tensorflow
