package service

// DecodeRequest is for a fuzz test.
var DecodeRequest = decodeRequest
