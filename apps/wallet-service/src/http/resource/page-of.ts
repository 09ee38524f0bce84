import { z } from '@hono/zod-openapi';

/** The schema of one page of a list. */
export function pageOf<Item extends z.ZodType>(item: Item) {
  return z.object({
    items: z.array(item),
    next: z
      .string()
      .nullable()
      .openapi({ description: 'Pass it as `cursor` to read on; null on the last page.' }),
  });
}
