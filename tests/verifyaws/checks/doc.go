// Package checks proves of a deployed stack what no machine without an AWS account can prove: that IAM denies what the roles
// must not do, that the mappings filter and set aside, that the front asks who is there, and that DynamoDB names itself where
// it removes expired rows.
//
// Without Config.Write it only reads. With it, it makes one call of a tenant of its own and one item that nobody can
// understand, looks at what becomes of them, and removes what it can; Planned says all of that before.
package checks
