CREATE TABLE "notifications" (
	"id" uuid PRIMARY KEY NOT NULL,
	"version" bigint NOT NULL,
	"state" text NOT NULL,
	"recipient" text NOT NULL,
	"wallet_id" uuid NOT NULL,
	"text" text NOT NULL
);
--> statement-breakpoint
ALTER TABLE "transfers" ADD COLUMN "reason" text;