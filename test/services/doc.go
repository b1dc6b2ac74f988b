// Package services runs released SDKs, unmodified, against the fakes of
// cloudtest and beside auth/exchange. It is a module of its own, so that
// importers of workloadid do not get their dependencies.
package services
