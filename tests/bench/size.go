package main

import (
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"toolledger/internal/schema"
)

// sizeOf is an item's size in bytes as DynamoDB counts and bills it: names and values, a number at one byte for two
// digits and one more, a map at three bytes and one for each of its entries.
func sizeOf(it schema.Item) int {
	size := 0
	for name, v := range it {
		size += len(name) + sizeOfValue(v)
	}
	return size
}

func sizeOfValue(v types.AttributeValue) int {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return (len(v.Value)+1)/2 + 1
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberBOOL:
		return 1
	case *types.AttributeValueMemberSS:
		size := 0
		for _, s := range v.Value {
			size += len(s)
		}
		return size
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + sizeOf(v.Value)
	}
	return 0 // no item of the ledger holds another type
}

// kilobytes is how many units of 1 KB an item takes to write.
func kilobytes(size int) int { return max(1, (size+1023)/1024) }
