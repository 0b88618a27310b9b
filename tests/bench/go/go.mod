module ebb.local/peer

go 1.24
