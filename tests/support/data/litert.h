// The part of LiteRT's C interface that the C++ program of docs/how-to/edge-device.md uses, for tests: no package has the
// headers, and the library is in ai-edge-litert.
#pragma once
#include <cstddef>

extern "C" {
enum LiteRtStatus { kLiteRtStatusOk = 0 };
enum LiteRtElementType { kLiteRtElementTypeFloat32 = 1, kLiteRtElementTypeInt64 = 4 };
enum LiteRtTensorBufferType { kLiteRtTensorBufferTypeHostMemory = 1 };
enum LiteRtTensorBufferLockMode { kLiteRtTensorBufferLockModeRead = 0, kLiteRtTensorBufferLockModeWrite = 1 };
enum { kLiteRtHwAcceleratorCpu = 1 };
typedef size_t LiteRtParamIndex;
typedef struct LiteRtEnvironmentT* LiteRtEnvironment;
typedef struct LiteRtModelT* LiteRtModel;
typedef struct LiteRtOptionsT* LiteRtOptions;
typedef struct LiteRtCompiledModelT* LiteRtCompiledModel;
typedef struct LiteRtSignatureT* LiteRtSignature;
typedef struct LiteRtTensorT* LiteRtTensor;
typedef struct LiteRtTensorBufferT* LiteRtTensorBuffer;
struct LiteRtLayout {
  unsigned rank : 7, has_strides : 1;
  int dimensions[8];
  unsigned strides[8];
};
struct LiteRtRankedTensorType {
  LiteRtElementType element_type;
  LiteRtLayout layout;
};
static_assert(sizeof(LiteRtRankedTensorType) == 72, "the size in the library");

LiteRtStatus LiteRtCreateEnvironment(int, const void*, LiteRtEnvironment*);
LiteRtStatus LiteRtCreateModelFromFile(LiteRtEnvironment, const char*, LiteRtModel*);
LiteRtStatus LiteRtCreateOptions(LiteRtOptions*);
LiteRtStatus LiteRtSetOptionsHardwareAccelerators(LiteRtOptions, int);
LiteRtStatus LiteRtCreateCompiledModel(LiteRtEnvironment, LiteRtModel, LiteRtOptions, LiteRtCompiledModel*);
LiteRtStatus LiteRtGetModelSignature(LiteRtModel, LiteRtParamIndex, LiteRtSignature*);
LiteRtStatus LiteRtGetNumSignatureInputs(LiteRtSignature, LiteRtParamIndex*);
LiteRtStatus LiteRtGetSignatureInputName(LiteRtSignature, LiteRtParamIndex, const char**);
LiteRtStatus LiteRtGetSignatureInputTensorByIndex(LiteRtSignature, LiteRtParamIndex, LiteRtTensor*);
LiteRtStatus LiteRtGetSignatureOutputTensorByIndex(LiteRtSignature, LiteRtParamIndex, LiteRtTensor*);
LiteRtStatus LiteRtGetRankedTensorType(LiteRtTensor, LiteRtRankedTensorType*);
LiteRtStatus LiteRtCreateManagedTensorBuffer(
    LiteRtEnvironment, LiteRtTensorBufferType, const LiteRtRankedTensorType*, size_t, LiteRtTensorBuffer*);
LiteRtStatus LiteRtLockTensorBuffer(LiteRtTensorBuffer, void**, LiteRtTensorBufferLockMode);
LiteRtStatus LiteRtUnlockTensorBuffer(LiteRtTensorBuffer);
LiteRtStatus LiteRtRunCompiledModel(
    LiteRtCompiledModel, LiteRtParamIndex, size_t, LiteRtTensorBuffer*, size_t, LiteRtTensorBuffer*);
}
