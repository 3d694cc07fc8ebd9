// Package eventcheck holds events against their published schemas, more strictly than a subscriber may: a member that the
// schema does not name is an error here. It is for tests, wherever they meet events.
package eventcheck
