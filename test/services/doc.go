// Package services runs released SDKs, unmodified, against the fakes of auth/authtest and beside auth/exchange. It is a module of
// its own, so that nobody who imports workloadid gets their dependencies.
package services
