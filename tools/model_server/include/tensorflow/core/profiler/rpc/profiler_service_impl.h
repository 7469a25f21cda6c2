// A profiler service without methods: the profiler in TensorFlow's library is compiled against another gRPC.
#pragma once

#include <memory>

#include "grpcpp/impl/codegen/service_type.h"

namespace tensorflow {
namespace grpc {

struct ProfilerService {
  using Service = ::grpc::Service;
};

}  // namespace grpc
namespace profiler {

inline std::unique_ptr<::grpc::Service> CreateProfilerService() { return std::make_unique<::grpc::Service>(); }

}  // namespace profiler
}  // namespace tensorflow
