CREATE TABLE "wallets" (
	"id" uuid PRIMARY KEY NOT NULL,
	"version" bigint NOT NULL,
	"created_date" timestamp with time zone NOT NULL,
	"updated_date" timestamp with time zone NOT NULL,
	"state" text NOT NULL,
	"owner_id" uuid NOT NULL,
	"currency" text NOT NULL,
	"balance" numeric(38, 18) NOT NULL
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
	"currency" text NOT NULL
);
--> statement-breakpoint
CREATE INDEX "wallets_owner_idx" ON "wallets" USING btree ("owner_id","id");