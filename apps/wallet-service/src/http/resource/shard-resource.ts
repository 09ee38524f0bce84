import { z } from '@hono/zod-openapi';

/** The schema of a shard as it is answered. */
export const shardResource = z
  .object({ group: z.int().openapi({ example: 1 }), member: z.int().openapi({ example: 0 }) })
  .openapi('Shard');
