// Package schema is the one place that knows how toolledger's items look in DynamoDB: keys, attribute names, the codec
// of every item, tables, periods and hashes. It imports nothing else of this module, so that writers, streams and
// sweeper read the same bytes the same way and no second key builder can drift from the first.
//
// # Items
//
// The ledger table holds quota items, sessions, ledger rows and observations; the control table holds plans, grants and
// the pollers' leases and checkpoints. Key parts are joined with '#', which no tenant, session or call key may contain
// (see [CheckID]), so that two different names never share a key.
//
//	quota, shard 0    TENANT#<t>               QUOTA#<period>
//	quota, shard k    TENANT#<t>#SHARD#<k>     QUOTA#<period>
//	session           TENANT#<t>#SESSION#<s>   META
//	row               TENANT#<t>#SESSION#<s>   TOOL#<callKey>
//	row, tenant-wide  TENANT#<t>#CALLS#<0…15>  TOOL#<callKey>
//	observation       OBS#<the row's pk>       TOOL#<callKey>
//	plan              TENANT#<t>               PLAN              (control table)
//	grant             TENANT#<t>               GRANT#<key>       (control table)
//	lease             STREAM#<stream>          LEASE#<shard>     (control table)
//
// # Decoding
//
// Decoders are total: any item gives a value or a [*DecodeError], never a panic. Attributes that this version does not
// know are passed over; a format above [Format] is refused, since its meaning is unknown.
package schema
