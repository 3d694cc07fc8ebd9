package api

import "errors"

// ErrNotYet is returned by the doors that are declared but not built in this version: AgentCore, Direct and Bedrock.
var ErrNotYet = errors.New("api: this door is not built yet; use NewHandler or Toolset")
