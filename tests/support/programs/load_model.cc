// Loads a SavedModel with the C++ functions that TensorFlow Serving calls, and prints an output of serving_default.
//
//     load_model FOLDER EXAMPLES OUTPUT
//
// EXAMPLES is a TFRecord file of serialized tf.Examples. Prints a value per line.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tensorflow/cc/saved_model/loader.h"
#include "tensorflow/core/lib/io/record_reader.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/public/session.h"

namespace {

void Check(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

std::vector<tensorflow::tstring> ReadRecords(const std::string& path) {
  std::unique_ptr<tensorflow::RandomAccessFile> file;
  Check(tensorflow::Env::Default()->NewRandomAccessFile(path, &file));
  tensorflow::io::SequentialRecordReader reader(file.get());
  std::vector<tensorflow::tstring> records;
  for (tensorflow::tstring record;;) {
    const absl::Status status = reader.ReadRecord(&record);
    if (tensorflow::errors::IsOutOfRange(status)) return records;
    Check(status);
    records.push_back(record);
  }
}

}  // namespace

int main(int, char** arguments) {
  tensorflow::SavedModelBundle bundle;
  Check(tensorflow::LoadSavedModel({}, {}, arguments[1], {"serve"}, &bundle));
  const auto& signature = bundle.GetSignatures().at("serving_default");
  const auto records = ReadRecords(arguments[2]);
  tensorflow::Tensor examples(tensorflow::DT_STRING, {static_cast<int64_t>(records.size())});
  std::copy(records.begin(), records.end(), examples.vec<tensorflow::tstring>().data());
  std::vector<tensorflow::Tensor> outputs;
  const std::string input = signature.inputs().begin()->second.name();
  Check(bundle.GetSession()->Run({{input, examples}}, {signature.outputs().at(arguments[3]).name()}, {}, &outputs));
  const auto values = outputs[0].flat<float>();
  for (int64_t index = 0; index < values.size(); ++index) std::printf("%.9g\n", values(index));
}
