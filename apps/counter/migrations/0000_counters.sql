CREATE TABLE "counters" (
	"id" uuid PRIMARY KEY NOT NULL,
	"state" text NOT NULL,
	"version" bigint NOT NULL,
	"created_date" timestamp with time zone NOT NULL,
	"updated_date" timestamp with time zone NOT NULL,
	"value" integer NOT NULL
);
