// The functions of libcurl that the server calls to decode the paths of URLs. TensorFlow's library exports them.
#pragma once

extern "C" {
typedef void CURL;
enum { CURL_GLOBAL_ALL = 3 };
int curl_global_init(long flags);
CURL* curl_easy_init();
char* curl_easy_unescape(CURL* handle, const char* text, int length, int* decoded_length);
void curl_free(void* text);
void curl_easy_cleanup(CURL* handle);
}
