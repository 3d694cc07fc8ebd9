# All downloads and everything that is built land in .local/; Go's own module and build caches are the only other places.
# Every target works without a network once it has run.

SHELL := /bin/sh
.DEFAULT_GOAL := help

LOCAL := $(CURDIR)/.local
TOOLS := $(LOCAL)/tools

GOLANGCI_LINT_VERSION := v2.15.0
GOFUMPT_VERSION := v0.12.0
LAMBDA_RIE_VERSION := v0.0.0-20261030222936-bef5c4ba774d
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)/golangci-lint
GOFUMPT := $(TOOLS)/gofumpt-$(GOFUMPT_VERSION)/gofumpt
LAMBDA_RIE := $(TOOLS)/aws-lambda-rie-$(LAMBDA_RIE_VERSION)/aws-lambda-rie
export GOLANGCI_LINT_CACHE := $(LOCAL)/cache/golangci-lint

TOOLLEDGER := $(LOCAL)/bin/toolledger
LAMBDA_ARCH ?= arm64

ARGS ?=
RUN ?= .
SOAK ?= 10m
FUZZTIME ?= 30s
DECODERTIME ?= 60s

##@ Begin here
.PHONY: demo
demo: setup $(TOOLLEDGER) ## the retry-storm story on a local stack, with its proof (ARGS="--seed 7")
	@$(TOOLLEDGER) demo $(ARGS)

.PHONY: dev
dev: setup $(TOOLLEDGER) ## the whole system on a local stack with an HTTP front, until Ctrl-C (ARGS="--addr 127.0.0.1:8700")
	@exec $(TOOLLEDGER) dev $(ARGS)

.PHONY: setup
setup: ## fetch the local DynamoDB, a TypeScript compiler and the Go modules; does nothing where they are there
	@internal/stack/npm/install.sh $(LOCAL)/dynoxide
	@examples/clients/typescript/install.sh $(LOCAL)/typescript
	@go list -e -deps -test ./... >/dev/null

.PHONY: setup-deploy
setup-deploy: $(LAMBDA_RIE) ## fetch the tools that prove the deployment, with Python 3.10 or newer; does nothing where they are there
	@tools/deploy-tools.sh $(LOCAL)/python

##@ Develop
.PHONY: test
test: setup setup-deploy ## all tests, with the race detector (RUN=TestName for some)
	go test -race -p 2 -timeout 15m -run '$(RUN)' ./...

.PHONY: check
check: $(GOFUMPT) $(GOLANGCI_LINT) ## format, lint, import order, modules, generated files
	@tools/check.sh $(GOFUMPT) $(GOLANGCI_LINT)

.PHONY: fmt
fmt: $(GOFUMPT) ## format all Go files
	@git ls-files -z --cached --others --exclude-standard -- '*.go' | xargs -0 ls -d 2>/dev/null | xargs $(GOFUMPT) -w

.PHONY: bench
bench: setup ## measure, print a table and write .local/bench.json
	@go run ./tests/bench -out $(LOCAL)/bench.json $(ARGS)

.PHONY: soak
soak: setup ## long runs: simulations for SOAK=10m, every fuzz target for FUZZTIME=30s
	TOOLLEDGER_SOAK=$(SOAK) go test -race -count=1 -p 1 -timeout 2h -run 'Soak|Simulation' ./...
	@tools/fuzz.sh $(FUZZTIME)

.PHONY: fuzz-decoder
fuzz-decoder: ## fuzz the decoder of stream records (DECODERTIME=60s)
	go test -run '^$$' -fuzz '^FuzzDecode$$' -fuzzminimizetime 10x -fuzztime $(DECODERTIME) ./streams

##@ Build
.PHONY: build
build: $(TOOLLEDGER) ## the command line, and a bootstrap for each Lambda function (LAMBDA_ARCH=arm64)
	@tools/build-lambda.sh $(LOCAL)/lambda $(LAMBDA_ARCH)

.PHONY: $(TOOLLEDGER)
$(TOOLLEDGER):
	@test -x $@ || echo "building toolledger; the first time takes some minutes"
	@go build -trimpath -o $@ ./cmd/toolledger

# SAM calls these for the functions of template.yaml, with ARTIFACTS_DIR set to where the bootstrap belongs. It does not say for
# which processor: LAMBDA_ARCH must be the template's Architecture (arm64, or x86_64, which Go calls amd64). Without the
# repository's state in it, a binary changes only with its code, and a deployment leaves the functions alone that did not change.
LAMBDA_BUILD = CGO_ENABLED=0 GOOS=linux GOARCH=$(LAMBDA_ARCH:x86_64=amd64) \
	go build -trimpath -buildvcs=false -tags lambda.norpc -ldflags '-s -w' -o "$(ARTIFACTS_DIR)/bootstrap"

.PHONY: build-WriterHttpFunction build-WriterDirectFunction build-AdminFunction
build-WriterHttpFunction build-WriterDirectFunction build-AdminFunction:
	$(LAMBDA_BUILD) ./writers/lambda

.PHONY: build-StreamFunction build-SweeperFunction
build-StreamFunction:
	$(LAMBDA_BUILD) ./streams/lambda
build-SweeperFunction:
	$(LAMBDA_BUILD) ./sweeper/lambda

.PHONY: build-BedrockFunction build-AgentCoreFunction build-SubscriberFunction
build-BedrockFunction build-AgentCoreFunction:
	$(LAMBDA_BUILD) ./examples/tickets
build-SubscriberFunction:
	$(LAMBDA_BUILD) ./examples/subscriber

.PHONY: verify-aws
verify-aws: ## prove a deployed stack in your account, reading only (STACK=name; ARGS="-write" makes a call of its own, after asking)
	@test -n "$(STACK)" || { echo "verify-aws: say which stack: make verify-aws STACK=toolledger-dev" >&2; exit 2; }
	@go run ./tests/verifyaws -stack "$(STACK)" $(ARGS)

.PHONY: clean
clean: ## remove what was built; downloads stay
	@rm -rf $(LOCAL)/bin $(LOCAL)/lambda $(LOCAL)/tmp $(LOCAL)/cache $(LOCAL)/bench.json

.PHONY: distclean
distclean: ## remove what was built and what was downloaded
	@rm -rf $(LOCAL)

# GOBIN carries the version, so that another version is another file.
$(GOLANGCI_LINT):
	@echo "building golangci-lint $(GOLANGCI_LINT_VERSION), once: this takes minutes"
	@GOFLAGS= GOBIN=$(@D) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)

$(GOFUMPT):
	@GOFLAGS= GOBIN=$(@D) go install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)

$(LAMBDA_RIE):
	@echo "building the Lambda emulator, once"
	@GOFLAGS= GOBIN=$(@D) go install github.com/aws/aws-lambda-runtime-interface-emulator/cmd/aws-lambda-rie@$(LAMBDA_RIE_VERSION)

.PHONY: help
help:
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
