// Package whole deploys the built template as one stack into a local AWS and drives it from outside: the sixth rung of the
// proof of the deployment. The functions run as the binaries that SAM would upload, with the environment, the event source
// mappings, the schedule, the rules and the roles of the template; the local AWS (ministack) evaluates the roles' policies.
//
// What it cannot create is left out by a list, each entry with the rung that covers it. Where it differs from AWS is said
// where it matters: its mapping knows no partial batch failures, and its IAM no dynamodb:LeadingKeys, so observations are
// refused there.
package whole
