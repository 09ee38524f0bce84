import { type AnyEntity, type DatabaseRegistry, type Repository, modelNameOf } from '@framework/core';
import { MemoryRepository } from '../../memory/index.js';
import { SpecificationError } from '../specification-error.js';
import type { MemoryRepositoryClass, RepositoryOf, WorldOptions } from './world-setup.js';

type ListedClass = WorldOptions['models'][number];

/** The repositories of a world: one for each model. */
export class WorldRepositories {
  /** By the classes that were listed, and by those of the models. */
  readonly #byClass = new Map<unknown, MemoryRepository<AnyEntity>>();

  constructor(listed: readonly ListedClass[], databases: DatabaseRegistry) {
    for (const each of listed) {
      const repository = isRepositoryClass(each)
        ? new each(databases)
        : new MemoryRepository({ model: each, databases });
      this.#byClass.set(each, repository);
      this.#byClass.set(repository.model, repository);
    }
  }

  /** All of them, for the executor. */
  get all(): readonly Repository[] {
    return [...new Set(this.#byClass.values())];
  }

  /** Finds one by a class that was listed, or by that of its models. */
  readonly of: RepositoryOf = (listed: { readonly name: string }) => {
    const repository = this.#byClass.get(listed);
    if (repository === undefined) throw unknownModel(listed.name);
    // The map's key is the class of its value, or of the models that it stores.
    return repository as never;
  };

  /** Finds one by the name of its model. */
  ofName(modelName: string): MemoryRepository<AnyEntity> {
    for (const repository of this.#byClass.values())
      if (modelNameOf(repository.model) === modelName) return repository;
    throw unknownModel(modelName);
  }
}

function isRepositoryClass(
  listed: ListedClass,
): listed is MemoryRepositoryClass<MemoryRepository<AnyEntity>> {
  return listed.prototype instanceof MemoryRepository;
}

function unknownModel(name: string): SpecificationError {
  return new SpecificationError('unknown-model', `The specification does not list ${name}: add it to models`);
}
