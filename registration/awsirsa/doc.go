// Package awsirsa registers clusters on Amazon EKS by AWS IAM, for hubs that
// sign no client certificates. The agent has an IAM role in its own account.
// For each accepted cluster the hub creates a second role in its own account,
// which only the agent's role may assume. The hub's API server maps that role
// to the groups of the cluster.
//
// On the managed cluster, [Driver] is one of the drivers of an agent.Agent:
//
//	driver, err := awsirsa.New(awsirsa.Options{
//		Hub:     "arn:aws:eks:eu-central-1:111111111111:cluster/hub",
//		Managed: "arn:aws:eks:eu-west-1:222222222222:cluster/shop",
//		Connect: connect, // by auth.GetClusterConfig: see Options
//	})
//
// On the hub, [HubDriver] is one of the drivers of a hub.Hub:
//
//	driver, err := awsirsa.NewHubDriver(awsirsa.HubDriverOptions{
//		Hub: "arn:aws:eks:eu-central-1:111111111111:cluster/hub",
//		IAM: iam.NewFromConfig(config),
//		EKS: eks.NewFromConfig(config),
//	})
//
// [AgentRole] and [HubRole] return the roles that have to exist before.
//
// # Ownership
//
// The hub tags each role and each access entry with its own ARN and the name of
// the ManagedCluster. It changes and deletes only objects with these tags. Two
// clusters therefore cannot share an ARN: the hub finds the role of the first
// and refuses the second. Entries in aws-auth have no tags, so their user name
// identifies them.
//
// # Calls
//
// Without drift, [HubDriver.Grant] calls GetRole, GetRolePolicy and
// DescribeAccessEntry once each. The hub.Hub calls Grant once an hour and after
// a restart. A first grant and a revocation make five calls each. With
// [AWSAuth] the hub calls only IAM: twice, and three times for a first grant
// and a revocation.
package awsirsa
