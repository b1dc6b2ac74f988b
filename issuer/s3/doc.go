// Package s3 keeps the documents of an issuer in a bucket of Amazon S3, or of a
// compatible service with conditional writes, such as MinIO, for programs that
// run an [issuer.Publisher]. The example of the package writes and reads a
// document.
//
// The publisher needs the permissions s3:GetObject and s3:PutObject on the
// objects, and s3:ListBucket on the bucket: without s3:ListBucket, S3 answers
// AccessDenied for a file that does not exist yet.
//
// The issuer is the address of the bucket's REST endpoint,
// https://my-oidc-bucket.s3.eu-central-1.amazonaws.com/cluster-1, with a bucket
// policy that allows public reads, or the address of a CloudFront distribution
// in front of it. With CloudFront, Block Public Access stays on. The website
// endpoints of S3 lack https and cannot serve an issuer.
package s3
