// A batch scheduler with one queue, on the scheduler with several queues. TensorFlow's wheel lacks this header.
//
// The model server calls SharedBatchScheduler itself; this class is compiled for functions that it does not call.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "tensorflow/core/kernels/batching_util/shared_batch_scheduler.h"

namespace tensorflow {
namespace serving {

template <typename Task>
class BasicBatchScheduler : public BatchScheduler<Task> {
  using Shared = SharedBatchScheduler<Task>;

 public:
  struct Options : Shared::QueueOptions {
    std::string thread_pool_name = "batch_threads";
    int max_batch_size = 1000;
  };

  static absl::Status Create(const Options& options, std::function<void(std::unique_ptr<Batch<Task>>)> process,
                             std::unique_ptr<BasicBatchScheduler>* scheduler) {
    typename Shared::Options threads;
    threads.thread_pool_name = options.thread_pool_name;
    std::shared_ptr<Shared> shared;
    TF_RETURN_IF_ERROR(Shared::Create(threads, &shared));
    typename Shared::QueueOptions queue_options = options;
    queue_options.input_batch_size_limit = options.max_batch_size;
    std::unique_ptr<BatchScheduler<Task>> queue;
    TF_RETURN_IF_ERROR(shared->AddQueue(queue_options, process, &queue));
    scheduler->reset(new BasicBatchScheduler(std::move(queue)));
    return absl::OkStatus();
  }

  absl::Status Schedule(std::unique_ptr<Task>* task) override { return queue_->Schedule(task); }
  size_t NumEnqueuedTasks() const override { return queue_->NumEnqueuedTasks(); }
  size_t SchedulingCapacity() const override { return queue_->SchedulingCapacity(); }
  size_t max_task_size() const override { return queue_->max_task_size(); }

 private:
  explicit BasicBatchScheduler(std::unique_ptr<BatchScheduler<Task>> queue) : queue_(std::move(queue)) {}

  std::unique_ptr<BatchScheduler<Task>> queue_;
};

}  // namespace serving
}  // namespace tensorflow
