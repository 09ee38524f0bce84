CREATE TABLE "wallets" (
	"id" uuid PRIMARY KEY NOT NULL,
	"version" bigint NOT NULL,
	"created_date" timestamp with time zone NOT NULL,
	"updated_date" timestamp with time zone NOT NULL,
	"state" text NOT NULL,
	"owner_id" uuid NOT NULL,
	"currency" text NOT NULL,
	"balance" numeric(48, 18) NOT NULL
);
--> statement-breakpoint
CREATE TABLE "transfers" (
	"id" uuid PRIMARY KEY NOT NULL,
	"version" bigint NOT NULL,
	"created_date" timestamp with time zone NOT NULL,
	"updated_date" timestamp with time zone NOT NULL,
	"state" text NOT NULL,
	"source_id" uuid NOT NULL,
	"dest_id" uuid NOT NULL,
	"amount" numeric(38, 18) NOT NULL,
	"currency" text NOT NULL,
	"reason" text
);
--> statement-breakpoint
CREATE TABLE "transfer_decisions" (
	"id" uuid PRIMARY KEY NOT NULL,
	"version" bigint NOT NULL,
	"created_date" timestamp with time zone NOT NULL,
	"updated_date" timestamp with time zone NOT NULL,
	"state" text NOT NULL,
	"transfer_id" uuid NOT NULL,
	"dest_id" uuid NOT NULL,
	"amount" numeric(38, 18) NOT NULL,
	"currency" text NOT NULL,
	"reason" text
);
--> statement-breakpoint
CREATE TABLE "notifications" (
	"id" uuid PRIMARY KEY NOT NULL,
	"version" bigint NOT NULL,
	"state" text NOT NULL,
	"recipient" text NOT NULL,
	"wallet_id" uuid NOT NULL,
	"text" text NOT NULL
);
--> statement-breakpoint
CREATE INDEX "wallets_owner_idx" ON "wallets" USING btree ("owner_id","id");--> statement-breakpoint
CREATE INDEX "transfer_decisions_transfer_idx" ON "transfer_decisions" USING btree ("transfer_id");--> statement-breakpoint
CREATE INDEX "transfers_in_transit_idx" ON "transfers" USING btree ("created_date") WHERE state = 'INITIATED';
