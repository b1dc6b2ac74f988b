// Package fleet measures the hub program with thousands of joined clusters on a
// real API server, and the agent program at rest. make bench-fleet runs it. The
// clusters are created as a hub leaves them, and their simulated agents renew
// their Leases. A second test does the same with token add-ons.
package fleet
