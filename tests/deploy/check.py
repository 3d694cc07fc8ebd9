"""Answers questions about templates: one JSON object a line in, one a line out, until the end of its input.

    {"op": "parse", "template": TEXT}                        the template as JSON, intrinsic functions in their long form
    {"op": "transform", "template": TEXT, "params": {...}}   what CloudFormation makes of a SAM template
    {"op": "lint", "template": TEXT}                         what cfn-lint finds
    {"op": "openapi", "template": TEXT}                      whether an OpenAPI 3 document is one

One process answers many, since loading the tools takes longer than using them.
"""

import json
import logging
import os
import sys

REGION = "eu-central-1"

# Set before the SDK is loaded: nothing here may look for an account.
os.environ.update(AWS_DEFAULT_REGION=REGION, AWS_ACCESS_KEY_ID="none", AWS_SECRET_ACCESS_KEY="none")
logging.disable(logging.CRITICAL)

CODE = {"CodeUri": "s3://artifacts/code.zip", "ContentUri": "s3://artifacts/layer.zip"}


def read(text):
    if text.startswith("{"):  # YAML too, but a hundred times faster to read
        return json.loads(text)
    from samtranslator.yaml_helper import yaml_parse

    return yaml_parse(text)


def parse(job):
    return {"template": read(job["template"])}


def transform(job):
    import boto3
    from samtranslator.model.exceptions import InvalidDocumentException
    from samtranslator.parser.parser import Parser
    from samtranslator.translator.translator import Translator

    template = read(job["template"])
    for resource in template["Resources"].values():
        properties = resource.get("Properties", {})
        for name, uri in CODE.items():  # as a deployment does, which uploads what was built
            if isinstance(properties.get(name), str):
                properties[name] = uri
    # Managed policies would have to be asked for: no role here may use one.
    translator = Translator({}, Parser(), boto_session=boto3.Session(region_name=REGION))
    try:
        return {"template": translator.translate(template, job.get("params") or {})}
    except InvalidDocumentException as refused:
        return {"findings": [{"rule": "transform", "message": cause.message} for cause in refused.causes]}


def lint(job):
    from cfnlint.api import ManualArgs, lint as run

    return {
        "findings": [
            {"rule": m.rule.id, "message": m.message, "path": "/".join(map(str, getattr(m, "path", None) or []))}
            for m in run(job["template"], config=ManualArgs(regions=[REGION]))
        ]
    }


def openapi(job):
    from openapi_spec_validator import OpenAPIV30SpecValidator

    errors = OpenAPIV30SpecValidator(json.loads(job["template"])).iter_errors()
    return {"findings": [{"rule": "openapi", "message": e.message, "path": "/".join(map(str, e.path))} for e in errors]}


OPS = {"parse": parse, "transform": transform, "lint": lint, "openapi": openapi}


def main():
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the tools print is none of the answers
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = OPS[job["op"]](job)
        except Exception as error:  # a template that a tool chokes on is a finding like any other
            answer = {"findings": [{"rule": "crash", "message": f"{type(error).__name__}: {error}"}]}
        answers.write(json.dumps(answer, default=str) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
